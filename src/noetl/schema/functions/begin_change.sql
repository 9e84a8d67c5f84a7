-- Stops all appends and gives the change to a holder; without `p_wanted`, only one whose holder is silent is taken over.
-- A change that another one holds is left to it: no token comes back then.
CREATE OR REPLACE FUNCTION noetl.begin_change(p_wanted text, p_holder text, p_lease interval)
    RETURNS TABLE (mode text, came_from text, wanted text, holder text, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    way noetl.write_path;
BEGIN
    PERFORM pg_advisory_xact_lock(noetl.write_path_lock());
    SELECT * INTO way FROM noetl.write_path AS w FOR UPDATE;
    IF way.mode = 'draining' AND way.lease_until > clock_timestamp() THEN
        RETURN QUERY SELECT way.mode, way.came_from, way.wanted, way.holder, NULL::uuid;
    ELSIF way.mode = p_wanted OR (way.mode <> 'draining' AND p_wanted IS NULL) THEN
        RETURN QUERY SELECT way.mode, NULL::text, NULL::text, NULL::text, NULL::uuid;
    ELSE
        RETURN QUERY UPDATE noetl.write_path AS w SET mode = 'draining', changed_at = clock_timestamp(),
            came_from = coalesce(way.came_from, way.mode), wanted = coalesce(p_wanted, way.wanted), holder = p_holder,
            lease_token = gen_random_uuid(), lease_until = clock_timestamp() + p_lease
        RETURNING w.mode, w.came_from, w.wanted, w.holder, w.lease_token;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.begin_change IS
    'Begins a change of the write path, or takes over one whose holder is silent.';
REVOKE ALL ON FUNCTION noetl.begin_change FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.begin_change TO noetl_runtime, noetl_materializer;
