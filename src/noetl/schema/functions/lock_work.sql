CREATE OR REPLACE FUNCTION noetl.lock_work(
    p_tenant text, p_organization text, fences noetl.lease_fence[], events noetl.new_event[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    runs   bigint[];
    ended  bigint[];
    closed bigint[];
BEGIN
    -- Whoever ends what others hold locks all of it and the own leases at once, so that there is one order.
    SELECT array_agg(DISTINCT e.execution_id),
           array_agg(DISTINCT e.execution_id) FILTER (WHERE e.event_type IN (
               -- begin generated: types that end an execution
               'execution.cancelled', 'execution.completed', 'execution.failed', 'playbook.completed',
               'playbook.failed', 'workflow.completed', 'workflow.failed'
               -- end generated
           )),
           array_agg(DISTINCT e.stage_id) FILTER (WHERE e.event_type IN (
               -- begin generated: types that close a stage
               'stage.closed'
               -- end generated
           ))
    INTO runs, ended, closed FROM unnest(events) AS e;
    runs := runs || ARRAY(SELECT f.execution_id FROM unnest(fences) AS f);
    PERFORM FROM noetl.command AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization AND held.execution_id = ANY (runs)
      AND (held.execution_id = ANY (ended)
           OR (held.execution_id, held.command_id) IN (
               SELECT e.execution_id, e.command_id FROM unnest(events) AS e WHERE e.command_id IS NOT NULL
               UNION ALL
               SELECT f.execution_id, f.id FROM unnest(fences) AS f WHERE f.table_name = 'command'))
    ORDER BY held.execution_id, held.command_id FOR UPDATE;
    PERFORM FROM noetl.frame AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization AND held.execution_id = ANY (runs)
      AND (held.execution_id = ANY (ended) OR held.stage_id = ANY (closed)
           OR (held.execution_id, held.frame_id) IN (
               SELECT e.execution_id, e.frame_id FROM unnest(events) AS e WHERE e.frame_id IS NOT NULL
               UNION ALL
               SELECT f.execution_id, f.id::bigint FROM unnest(fences) AS f WHERE f.table_name = 'frame'))
    ORDER BY held.execution_id, held.frame_id::text COLLATE "C" FOR UPDATE;
END
$$;
COMMENT ON FUNCTION noetl.lock_work IS
    'Locks all that the end of an execution, a stage or a command takes from its holders, in the order of leases.';
REVOKE ALL ON FUNCTION noetl.lock_work FROM PUBLIC;
