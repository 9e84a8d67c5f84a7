CREATE OR REPLACE FUNCTION noetl.apply_pipelines(
    p_tenant text, p_organization text, facts noetl.event[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said      noetl.event;
    several   text[];
    own       record;
    together  integer := 0;
    cursors   jsonb := '[]';
BEGIN
    several := ARRAY(SELECT f.stream_id FROM unnest(facts) AS f GROUP BY f.stream_id HAVING count(*) > 1);
    FOR own IN
        SELECT t.event_type, array_agg(t.task ORDER BY t.task) AS tasks, array_agg(t.r ORDER BY t.task) AS facts
        FROM (SELECT f.event_type, substring(f.stream_id FROM 6)::uuid AS task, f AS r FROM unnest(facts) AS f
              WHERE f.event_type IN ('task.claimed', 'task.completed') AND f.stream_id <> ALL (several)) AS t
        GROUP BY t.event_type
    LOOP
        together := together + cardinality(own.tasks);
        IF own.event_type = 'task.claimed' THEN
            PERFORM noetl.claim_tasks(p_tenant, p_organization, own.tasks, own.facts);
        ELSIF own.event_type = 'task.completed' THEN
            PERFORM noetl.complete_tasks(p_tenant, p_organization, own.tasks, own.facts);
        END IF;
    END LOOP;
    IF together < cardinality(facts) THEN
        FOREACH said IN ARRAY facts LOOP
            CASE
            WHEN said.event_type IN ('task.claimed', 'task.completed') AND said.stream_id <> ALL (several) THEN
                NULL;
            WHEN said.event_type IN ('partition.committed', 'partition.dropped') THEN
                PERFORM noetl.apply_partition(said);
            WHEN said.event_type = 'dataset.schema_set' THEN
                INSERT INTO noetl.dataset_schema (tenant_id, organization_id, dataset_version, version, dataset_uuid,
                    schema, schema_hash, change)
                VALUES (p_tenant, p_organization, (said.meta ->> 'dataset_version')::uuid, said.stream_version,
                    (said.meta ->> 'dataset_uuid')::uuid, coalesce(said.context -> 'schema', '[]')::jsonb,
                    said.meta ->> 'schema_hash', said.meta ->> 'change');
            WHEN said.event_type = 'job.state_saved' THEN
                INSERT INTO noetl.operator_state (tenant_id, organization_id, generation, state_key, state, version)
                VALUES (p_tenant, p_organization, (said.meta ->> 'generation')::uuid, said.meta ->> 'state_key',
                    coalesce(said.context -> 'state', 'null')::jsonb, said.stream_version)
                ON CONFLICT (tenant_id, organization_id, generation, state_key) DO UPDATE
                    SET state = excluded.state, version = excluded.version;
            WHEN said.event_type IN (
                -- begin generated: types of tasks
                'task.abandoned', 'task.attempt_failed', 'task.cancel_requested', 'task.cancelled', 'task.claimed',
                'task.completed', 'task.created', 'task.failed', 'task.retried', 'task.skipped', 'task.started'
                -- end generated
            ) THEN PERFORM noetl.apply_task(said);
            WHEN said.event_type IN (
                -- begin generated: types of people
                'org.created', 'org.settings_changed', 'role.created', 'role.granted', 'role.revoked', 'user.added',
                'user.removed', 'user.role_changed'
                -- end generated
            ) THEN PERFORM noetl.apply_people(said);
            WHEN said.event_type IN (
                -- begin generated: types of dags
                'dag.activated', 'dag.build_failed', 'dag.ready', 'dag.rolled_back', 'dag.version_created',
                'dataset.generation_created', 'dataset.registered', 'job.registered'
                -- end generated
            ) THEN PERFORM noetl.apply_dag(said);
            ELSE
                RAISE case_not_found
                    USING MESSAGE = format('no rule says what becomes of pipelines after %s', said.event_type);
            END CASE;
        END LOOP;
    END IF;
    SELECT coalesce(jsonb_agg(c), '[]') INTO cursors
    FROM unnest(facts) AS f, json_array_elements(f.context -> 'cursors') AS c
    WHERE f.event_type IN ('task.completed', 'task.skipped');
    IF cursors <> '[]' THEN
        -- Several tasks may move one cursor: sorted, so that all callers lock them in one order.
        INSERT INTO noetl.dataset_cursor AS known (tenant_id, organization_id, dataset_version, consumer, partition_key,
            dataset_uuid, version)
        SELECT p_tenant, p_organization, (c ->> 'dataset_version')::uuid, (c ->> 'consumer')::uuid,
            c ->> 'partition_key', min(c ->> 'dataset_uuid')::uuid, max((c ->> 'version')::bigint)
        FROM jsonb_array_elements(cursors) AS c GROUP BY 3, 4, 5 ORDER BY 4, 3, 5
        ON CONFLICT (tenant_id, organization_id, consumer, dataset_version, partition_key) DO UPDATE
            SET version = greatest(known.version, excluded.version);
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_pipelines IS 'Changes the rows of pipelines as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_pipelines FROM PUBLIC;
