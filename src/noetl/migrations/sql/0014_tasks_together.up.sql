-- Tasks are claimed and completed by the dozen in one call. Their rows change together, by one statement for each of
-- the two, instead of one by one; whatever happens to a task more than once in a call is still told in its order.

-- Tasks come sorted, so that the event of one is found by halving; which ones is asked of a parameter, since of another
-- relation's column no index would be asked.
CREATE FUNCTION noetl.claim_tasks_v1(p_tenant text, p_organization text, tasks uuid[], facts noetl.event[]) RETURNS void
    LANGUAGE sql AS $$
    UPDATE noetl.task AS known SET status = 'Running', application_id = NULL, job_tag = NULL,
        (attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, started_at) = (
            SELECT meta.attempt, meta.worker, meta.lease_token, meta.lease_seconds,
                   said.ingest_time + make_interval(secs => meta.lease_seconds), said.ingest_time, said.ingest_time
            FROM (SELECT (facts[width_bucket(known.task_id, tasks)]).*) AS said, json_to_record(said.meta) AS meta (
                attempt integer, worker text, lease_token uuid, lease_seconds double precision))
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.task_id = ANY (tasks)
$$;
COMMENT ON FUNCTION noetl.claim_tasks_v1 IS 'Leases tasks as events say, each of which is the only one of its task.';
REVOKE ALL ON FUNCTION noetl.claim_tasks_v1 FROM PUBLIC;

CREATE FUNCTION noetl.complete_tasks_v1(p_tenant text, p_organization text, tasks uuid[], facts noetl.event[]) RETURNS void
    LANGUAGE sql AS $$
    UPDATE noetl.task AS known SET status = 'Completed', lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
        available_at = NULL, skipped_as = NULL,
        (error, logs_ref, outputs, ended_at) = (
            SELECT said.error, coalesce(said.payload_ref::jsonb, known.logs_ref), said.context::jsonb -> 'outputs',
                   said.ingest_time
            FROM (SELECT (facts[width_bucket(known.task_id, tasks)]).*) AS said)
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.task_id = ANY (tasks)
$$;
COMMENT ON FUNCTION noetl.complete_tasks_v1 IS 'Ends tasks well as events say, each of which is the only one of its task.';
REVOKE ALL ON FUNCTION noetl.complete_tasks_v1 FROM PUBLIC;

CREATE OR REPLACE FUNCTION noetl.apply_pipelines_v1(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    facts     noetl.event[];
    said      noetl.event;
    several   text[];
    own       record;
    together  integer := 0;
    cursors   jsonb := '[]';
BEGIN
    -- Asked for in the key's order, so that no plan made without statistics reads a whole execution for one event.
    SELECT array_agg(found.r ORDER BY x.place) INTO facts
    FROM unnest(p_execution, p_event) WITH ORDINALITY AS x (execution, event, place)
    CROSS JOIN LATERAL (
        SELECT ROW (e.*)::noetl.event AS r FROM noetl.known_event AS e
        WHERE e.execution_id = x.execution AND e.event_id >= x.event AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1
    ) AS found;
    several := ARRAY(SELECT f.stream_id FROM unnest(facts) AS f GROUP BY f.stream_id HAVING count(*) > 1);
    FOR own IN
        SELECT t.event_type, array_agg(t.task ORDER BY t.task) AS tasks, array_agg(t.r ORDER BY t.task) AS facts
        FROM (SELECT f.event_type, substring(f.stream_id FROM 6)::uuid AS task, f AS r FROM unnest(facts) AS f
              WHERE f.event_type IN ('task.claimed', 'task.completed') AND f.stream_id <> ALL (several)) AS t
        GROUP BY t.event_type
    LOOP
        together := together + cardinality(own.tasks);
        IF own.event_type = 'task.claimed' THEN
            PERFORM noetl.claim_tasks_v1(p_tenant, p_organization, own.tasks, own.facts);
        ELSE
            PERFORM noetl.complete_tasks_v1(p_tenant, p_organization, own.tasks, own.facts);
        END IF;
    END LOOP;
    IF together < cardinality(facts) THEN
        FOREACH said IN ARRAY facts LOOP
            CASE
            WHEN said.event_type IN ('task.claimed', 'task.completed') AND said.stream_id <> ALL (several) THEN
                NULL;
            WHEN said.event_type IN ('partition.committed', 'partition.dropped') THEN
                PERFORM noetl.apply_partition_v1(said);
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
            WHEN starts_with(said.event_type, 'task.') THEN
                PERFORM noetl.apply_task_v1(said);
            WHEN said.stream_id = 'people' THEN
                PERFORM noetl.apply_people_v1(said);
            ELSE
                PERFORM noetl.apply_dag_v1(said);
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
