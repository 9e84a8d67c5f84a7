CREATE OR REPLACE FUNCTION noetl.lock_work(
    p_tenant text, p_organization text, p_ending text[], f_table text[], f_execution bigint[], f_id text[],
    e_execution bigint[], e_stage bigint[], e_frame bigint[], e_type text[], e_command text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended  bigint[];
    closed bigint[];
BEGIN
    -- Whoever ends what others hold locks all of it and the own leases at once, so that there is one order.
    SELECT array_agg(DISTINCT e.execution) FILTER (WHERE e.type = ANY (p_ending)),
           array_agg(DISTINCT e.stage) FILTER (WHERE e.type = 'stage.closed')
    INTO ended, closed FROM unnest(e_execution, e_type, e_stage) AS e (execution, type, stage);
    PERFORM FROM noetl.command AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
      AND held.execution_id = ANY (e_execution || f_execution)
      AND (held.execution_id = ANY (ended)
           OR (held.execution_id, held.command_id) IN (
               SELECT e.execution, e.command FROM unnest(e_execution, e_command) AS e (execution, command)
               WHERE e.command IS NOT NULL
               UNION ALL
               SELECT f.execution, f.id FROM unnest(f_table, f_execution, f_id) AS f (name, execution, id)
               WHERE f.name = 'command'))
    ORDER BY held.execution_id, held.command_id FOR UPDATE;
    PERFORM FROM noetl.frame AS held
    WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
      AND held.execution_id = ANY (e_execution || f_execution)
      AND (held.execution_id = ANY (ended) OR held.stage_id = ANY (closed)
           OR (held.execution_id, held.frame_id) IN (
               SELECT e.execution, e.frame FROM unnest(e_execution, e_frame) AS e (execution, frame)
               WHERE e.frame IS NOT NULL
               UNION ALL
               SELECT f.execution, f.id::bigint FROM unnest(f_table, f_execution, f_id) AS f (name, execution, id)
               WHERE f.name = 'frame'))
    ORDER BY held.execution_id, held.frame_id::text COLLATE "C" FOR UPDATE;
END
$$;
COMMENT ON FUNCTION noetl.lock_work IS
    'Locks the leases that events end for others, with those their groups rely on.';
REVOKE ALL ON FUNCTION noetl.lock_work FROM PUBLIC;
