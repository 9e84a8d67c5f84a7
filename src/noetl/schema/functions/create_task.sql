CREATE OR REPLACE FUNCTION noetl.create_task(said noetl.event, own uuid) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    inputs jsonb := coalesce(said.context::jsonb -> 'inputs', '[]');
BEGIN
    INSERT INTO noetl.task (tenant_id, organization_id, task_id, job_id, dag_version_id, dag, job, generation,
        execution_id, dedupe_key, partition_key, status, attempt, max_attempts, runtime, memo_key, inputs, inputs_ref,
        lease_seconds, available_at, cancel_requested, created_event_id, created_at)
    VALUES (said.tenant_id, said.organization_id, own, (meta ->> 'job_id')::uuid, (meta ->> 'dag_version_id')::uuid,
        meta ->> 'dag', meta ->> 'job', (meta ->> 'generation')::uuid, said.execution_id, meta ->> 'dedupe_key', meta ->> 'partition_key', 'Queued', 0,
        (meta ->> 'max_attempts')::integer, meta ->> 'runtime', meta ->> 'memo_key', inputs, said.payload_ref::jsonb,
        (meta ->> 'lease_seconds')::double precision, said.ingest_time, false, said.event_id, said.ingest_time)
    ON CONFLICT (tenant_id, organization_id, task_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO noetl.task_input (tenant_id, organization_id, task_id, input_dataset_uuid, input_dataset_version,
        input_partition_key, input_version)
    SELECT DISTINCT said.tenant_id, said.organization_id, own, (i ->> 'dataset_uuid')::uuid,
        (i ->> 'dataset_version')::uuid, part ->> 0, (part ->> 1)::bigint
    FROM jsonb_array_elements(inputs) AS i, jsonb_array_elements(i -> 'parts') AS part
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;
COMMENT ON FUNCTION noetl.create_task IS
    'Makes the row of a task and of the partitions it reads, unless it stands.';
REVOKE ALL ON FUNCTION noetl.create_task FROM PUBLIC;
