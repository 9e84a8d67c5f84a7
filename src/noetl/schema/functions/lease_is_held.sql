CREATE OR REPLACE FUNCTION noetl.lease_is_held(token uuid, until timestamptz, asked uuid) RETURNS boolean
    LANGUAGE sql VOLATILE AS $$
    SELECT token = asked AND until > clock_timestamp()
$$;
COMMENT ON FUNCTION noetl.lease_is_held IS 'Tells whether a lease belongs to whoever shows this token, and lasts.';
REVOKE ALL ON FUNCTION noetl.lease_is_held FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.lease_is_held TO noetl_materializer;
