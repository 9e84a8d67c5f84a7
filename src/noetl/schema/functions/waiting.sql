CREATE OR REPLACE FUNCTION noetl.waiting(p_shard smallint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM noetl.pending_event AS p WHERE p.shard = p_shard)
$$;
COMMENT ON FUNCTION noetl.waiting IS 'Whether events of the shard wait, of any tenant.';
REVOKE ALL ON FUNCTION noetl.waiting FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.waiting TO noetl_runtime;
