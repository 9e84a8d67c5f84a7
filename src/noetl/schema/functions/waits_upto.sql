CREATE OR REPLACE FUNCTION noetl.waits_upto(p_shard smallint, p_position bigint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= p_position)
$$;
COMMENT ON FUNCTION noetl.waits_upto IS
    'Whether events of the shard wait, of any tenant, up to a place among them.';
REVOKE ALL ON FUNCTION noetl.waits_upto FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.waits_upto TO noetl_runtime;
