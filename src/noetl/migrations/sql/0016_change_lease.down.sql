DROP FUNCTION noetl.begin_change_v1, noetl.renew_change_v1, noetl.end_change_v1;
ALTER TABLE noetl.write_path
    DROP COLUMN came_from, DROP COLUMN wanted, DROP COLUMN holder, DROP COLUMN lease_token, DROP COLUMN lease_until;
-- Who may call the function that revision 0013 has.
REVOKE ALL ON FUNCTION noetl.change_write_path_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.change_write_path_v1 TO noetl_runtime;
