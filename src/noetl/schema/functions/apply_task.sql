CREATE OR REPLACE FUNCTION noetl.apply_task(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    own    uuid := substring(said.stream_id FROM 6)::uuid;
    delay  double precision := 0;
    coming integer;
BEGIN
    CASE said.event_type
    WHEN 'task.created' THEN
        coming := CASE WHEN noetl.create_task(said, own) THEN 1 END;
    WHEN 'task.claimed' THEN
        UPDATE noetl.task SET status = 'Running', attempt = (meta ->> 'attempt')::integer, worker = meta ->> 'worker',
            lease_token = (meta ->> 'lease_token')::uuid, lease_seconds = (meta ->> 'lease_seconds')::double precision,
            lease_until = said.ingest_time + make_interval(secs => (meta ->> 'lease_seconds')::double precision),
            last_heartbeat = said.ingest_time, application_id = NULL, job_tag = NULL, started_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    WHEN 'task.started' THEN
        UPDATE noetl.task SET application_id = meta ->> 'application_id', job_tag = meta ->> 'job_tag'
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    WHEN 'task.attempt_failed', 'task.abandoned' THEN
        delay := coalesce((meta ->> 'delay_seconds')::double precision, 0);
        UPDATE noetl.task SET status = 'Failed', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            available_at = said.ingest_time + make_interval(secs => delay), error = said.error,
            logs_ref = coalesce(said.payload_ref::jsonb, logs_ref), ended_at = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own
        RETURNING attempt + 1 INTO coming;
    WHEN 'task.retried' THEN
        UPDATE noetl.task SET status = 'Queued', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            max_attempts = max_attempts + (meta ->> 'extra_attempts')::integer, available_at = said.ingest_time,
            cancel_requested = false, ended_at = NULL, outputs = NULL, skipped_as = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own
        RETURNING attempt + 1 INTO coming;
    WHEN 'task.cancel_requested' THEN
        UPDATE noetl.task SET cancel_requested = true
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    WHEN 'task.completed', 'task.skipped', 'task.failed', 'task.cancelled' THEN
        UPDATE noetl.task SET lease_token = NULL, lease_until = NULL, last_heartbeat = NULL, available_at = NULL,
            status = CASE said.event_type WHEN 'task.completed' THEN 'Completed' WHEN 'task.skipped' THEN 'Skipped'
                                          WHEN 'task.failed' THEN 'Failed' WHEN 'task.cancelled' THEN 'Canceled' END,
            error = said.error, logs_ref = coalesce(said.payload_ref::jsonb, logs_ref),
            outputs = said.context::jsonb -> 'outputs', skipped_as = (meta ->> 'as_task')::uuid,
            ended_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND task_id = own;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of tasks after %s', said.event_type);
    END CASE;
    IF coming IS NOT NULL THEN
        PERFORM noetl.put_outbox(said, format('task_wakeup:%s:%s', own, coming), 'enqueue_task',
                                    jsonb_build_object('task_id', own, 'attempt', coming), delay);
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_task IS
    'Changes a task as an event of its stream says, and wakes whoever may work on it.';
REVOKE ALL ON FUNCTION noetl.apply_task FROM PUBLIC;
