CREATE OR REPLACE FUNCTION noetl.write_path_lock() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 7812331904467701;
COMMENT ON FUNCTION noetl.write_path_lock IS
    'The advisory lock that every append shares and a change of the write path takes alone.';
