CREATE OR REPLACE FUNCTION noetl.apply_dag(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta    jsonb := coalesce(said.meta::jsonb, '{}');
    context jsonb := coalesce(said.context::jsonb, '{}');
    version uuid := (meta ->> 'dag_version_id')::uuid;
BEGIN
    CASE said.event_type
    WHEN 'dag.version_created' THEN
        DELETE FROM noetl.dag_version_dataset WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND dag_version_id = version;
        DELETE FROM noetl.dag_version WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND dag_version_id = version;
        INSERT INTO noetl.dag_version (tenant_id, organization_id, dag_version_id, dag, yaml_hash, bundle_digest,
            code_digest, bundle_ref, pointers, publish, built, status, deploy_execution_id, created_at)
        VALUES (said.tenant_id, said.organization_id, version, meta ->> 'dag', meta ->> 'yaml_hash',
            meta ->> 'bundle_digest', meta ->> 'code_digest', said.payload_ref::jsonb, context -> 'pointers',
            coalesce(context -> 'publish', '{}'), coalesce(context -> 'built', '[]'), 'building', said.execution_id,
            said.ingest_time);
        INSERT INTO noetl.dag_version_dataset (tenant_id, organization_id, dag_version_id, dataset_uuid, dataset_version)
        SELECT said.tenant_id, said.organization_id, version, p.key::uuid, p.value::uuid
        FROM jsonb_each_text(context -> 'pointers') AS p;
    WHEN 'job.registered' THEN
        DELETE FROM noetl.job WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND job_id = (meta ->> 'job_id')::uuid;
        INSERT INTO noetl.job (tenant_id, organization_id, job_id, dag_version_id, dag, name, generation, job_hash,
            activation, runtime, operator, execution_strategy, update_strategy, max_concurrency, max_attempts,
            timeout_seconds, lease_seconds, definition, inputs, input_datasets, output_datasets)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'job_id')::uuid, version, meta ->> 'dag',
            said.node_name, (meta ->> 'generation')::uuid, meta ->> 'job_hash', meta ->> 'activation',
            meta ->> 'runtime', meta ->> 'operator', meta ->> 'execution_strategy', meta ->> 'update_strategy',
            (meta ->> 'max_concurrency')::integer, (meta ->> 'max_attempts')::integer,
            (meta ->> 'timeout_seconds')::double precision, (meta ->> 'lease_seconds')::double precision,
            coalesce(context -> 'definition', '{}'), coalesce(context -> 'inputs', '[]'),
            ARRAY(SELECT DISTINCT (i ->> 'dataset_uuid')::uuid FROM jsonb_array_elements(context -> 'inputs') AS i
                  ORDER BY 1),
            ARRAY(SELECT o::uuid FROM jsonb_array_elements_text(context -> 'outputs') WITH ORDINALITY AS x (o, place)
                  ORDER BY x.place));
    WHEN 'dataset.registered' THEN
        INSERT INTO noetl.dataset AS known (tenant_id, organization_id, dataset_uuid, name, producer_dag, producer_job,
            producer_output_index, published, created_at)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_uuid')::uuid, meta ->> 'name',
            meta ->> 'dag', meta ->> 'job', (meta ->> 'output')::integer,
            coalesce((meta ->> 'published')::boolean, false), said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dataset_uuid) DO UPDATE
            SET name = excluded.name, published = excluded.published;
    WHEN 'dataset.generation_created' THEN
        INSERT INTO noetl.dataset_version (tenant_id, organization_id, dataset_version, dataset_uuid, generation,
            config_hash, storage_location, partition_by, range_start, range_end, created_at)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid,
            (meta ->> 'dataset_uuid')::uuid, (meta ->> 'generation')::uuid, meta ->> 'config_hash',
            meta ->> 'storage_location', coalesce(context -> 'partition_by', '[]'), (meta ->> 'range_start')::bigint,
            (meta ->> 'range_end')::bigint, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dataset_version) DO NOTHING;
    WHEN 'dag.ready' THEN
        UPDATE noetl.dag_version SET status = 'ready', ready_at = said.ingest_time, error = NULL
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
    WHEN 'dag.build_failed' THEN
        UPDATE noetl.dag_version SET status = 'failed', error = said.error
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
    WHEN 'dag.activated', 'dag.rolled_back' THEN
        UPDATE noetl.dag_version SET status = 'retired' WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND dag_version_id = (meta ->> 'previous')::uuid;
        UPDATE noetl.dag_version SET status = 'active', activated_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND dag_version_id = version;
        INSERT INTO noetl.dag_current_version (tenant_id, organization_id, dag, dag_version_id, updated_at)
        VALUES (said.tenant_id, said.organization_id, substring(said.stream_id FROM 5), version, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, dag) DO UPDATE
            SET dag_version_id = excluded.dag_version_id, updated_at = excluded.updated_at;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of a DAG after %s', said.event_type);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_dag IS 'Changes the rows of a DAG as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_dag FROM PUBLIC;
