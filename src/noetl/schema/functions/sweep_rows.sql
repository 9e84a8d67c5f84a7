-- Deletes only what an event of the organization allows, so that nobody can delete what it does not name.
CREATE OR REPLACE FUNCTION noetl.sweep_rows(p_kind text, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    allowed timestamptz := (SELECT s.until FROM noetl.sweep AS s WHERE s.kind = p_kind);
    old     uuid[];
    gone    bigint := 0;
BEGIN
    CASE p_kind
    WHEN 'outbox' THEN
        DELETE FROM noetl.outbox WHERE outbox_id IN (
            SELECT o.outbox_id FROM noetl.outbox AS o
            WHERE o.status = 'Done' AND o.created_at < allowed AND o.processed_at < allowed LIMIT p_limit);
        GET DIAGNOSTICS gone = ROW_COUNT;
    WHEN 'tasks' THEN
        old := ARRAY(SELECT t.task_id FROM noetl.task AS t
                     WHERE t.generation IN (SELECT noetl.gone_generations()) AND t.ended_at < allowed
                       AND t.available_at IS NULL LIMIT p_limit);
        DELETE FROM noetl.task_input WHERE task_id = ANY (old);
        DELETE FROM noetl.task WHERE task_id = ANY (old);
        GET DIAGNOSTICS gone = ROW_COUNT;
    WHEN 'queries' THEN
        DELETE FROM noetl.query_audit WHERE query_id IN (
            SELECT q.query_id FROM noetl.query_audit AS q WHERE q.asked_at < allowed LIMIT p_limit);
        GET DIAGNOSTICS gone = ROW_COUNT;
    END CASE;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION noetl.sweep_rows IS
    'Deletes rows of history that are older than the last sweep of their kind allows, some at a time.';
REVOKE ALL ON FUNCTION noetl.sweep_rows FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.sweep_rows TO noetl_runtime;
