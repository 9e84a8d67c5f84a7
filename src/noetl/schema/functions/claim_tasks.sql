-- Tasks are claimed and completed by the dozen in one call. Their rows change together, by one statement for each of
-- the two, instead of one by one; whatever happens to a task more than once in a call is still told in its order.
-- Tasks come sorted, so that the event of one is found by halving; which ones is asked of a parameter, since of another
-- relation's column no index would be asked.
CREATE OR REPLACE FUNCTION noetl.claim_tasks(p_tenant text, p_organization text, tasks uuid[], facts noetl.event[]) RETURNS void
    LANGUAGE sql AS $$
    UPDATE noetl.task AS known SET status = 'Running', application_id = NULL, job_tag = NULL,
        (attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, started_at) = (
            SELECT meta.attempt, meta.worker, meta.lease_token, meta.lease_seconds,
                   said.ingest_time + make_interval(secs => meta.lease_seconds), said.ingest_time, said.ingest_time
            FROM (SELECT (facts[width_bucket(known.task_id, tasks)]).*) AS said, json_to_record(said.meta) AS meta (
                attempt integer, worker text, lease_token uuid, lease_seconds double precision))
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.task_id = ANY (tasks)
$$;
COMMENT ON FUNCTION noetl.claim_tasks IS 'Leases tasks as events say, each of which is the only one of its task.';
REVOKE ALL ON FUNCTION noetl.claim_tasks FROM PUBLIC;
