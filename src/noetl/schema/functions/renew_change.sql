CREATE OR REPLACE FUNCTION noetl.renew_change(p_token uuid, p_lease interval) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH renewed AS (
        UPDATE noetl.write_path AS w SET lease_until = clock_timestamp() + p_lease WHERE w.lease_token = p_token RETURNING 1)
    SELECT EXISTS (SELECT FROM renewed)
$$;
COMMENT ON FUNCTION noetl.renew_change IS
    'Renews the lease on a change of the write path, and tells whether it is held.';
REVOKE ALL ON FUNCTION noetl.renew_change FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.renew_change TO noetl_runtime, noetl_materializer;
