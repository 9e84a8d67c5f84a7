CREATE OR REPLACE FUNCTION noetl.complete_tasks(p_tenant text, p_organization text, tasks uuid[], facts noetl.event[]) RETURNS void
    LANGUAGE sql AS $$
    UPDATE noetl.task AS known SET status = 'Completed', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
        available_at = NULL, skipped_as = NULL,
        (error, logs_ref, outputs, ended_at) = (
            SELECT said.error, coalesce(said.payload_ref::jsonb, known.logs_ref), said.context::jsonb -> 'outputs',
                   said.ingest_time
            FROM (SELECT (facts[width_bucket(known.task_id, tasks)]).*) AS said)
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.task_id = ANY (tasks)
$$;
COMMENT ON FUNCTION noetl.complete_tasks IS
    'Ends tasks well as events say, each of which is the only one of its task.';
REVOKE ALL ON FUNCTION noetl.complete_tasks FROM PUBLIC;
