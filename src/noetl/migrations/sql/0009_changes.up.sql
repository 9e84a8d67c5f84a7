-- Invalidations, which say that rows of a dataset are wrong, and backfills, which build partitions of a range again.
--
-- Both are named by their run. The partitions of a backfill stand in the order they are made: those before `made` have
-- been given to tasks, so that moving one number moves any number of partitions.

CREATE TABLE noetl.data_invalidation (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    invalidation_id bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    scope           text NOT NULL CHECK (scope IN ('partition', 'row_range')),
    partition_key   text COLLATE "C",
    row_filter      jsonb,
    reason          text NOT NULL CHECK (reason IN ('correction', 'reorg', 'manual', 'schema_change')),
    note            text,
    requested_by    text NOT NULL,
    dependents      jsonb NOT NULL,
    processed_by    jsonb NOT NULL,
    status          text NOT NULL CHECK (status IN ('open', 'closed')),
    closed_because  text,
    created_at      timestamptz NOT NULL,
    closed_at       timestamptz,
    PRIMARY KEY (tenant_id, organization_id, invalidation_id)
);
COMMENT ON TABLE noetl.data_invalidation IS
    'Rows that were said to be wrong: how many tasks of which generations follow from it, and how many of them are done.';
CREATE INDEX idx_data_invalidation_open ON noetl.data_invalidation (dataset_uuid, tenant_id, organization_id)
    WHERE status = 'open';

CREATE TABLE noetl.backfill (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    backfill_id     bigint NOT NULL,
    version         bigint NOT NULL,
    dag             text COLLATE "C" NOT NULL,
    job             text COLLATE "C" NOT NULL,
    generation      uuid NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    selection       jsonb NOT NULL,
    keys_ref        jsonb NOT NULL,
    total           integer NOT NULL,
    queued          integer NOT NULL,
    made            integer NOT NULL,
    tasks           integer NOT NULL,
    max_in_flight   integer NOT NULL,
    status          text NOT NULL
        CHECK (status IN ('queueing', 'running', 'paused', 'cancelled', 'completed', 'failed')),
    requested_by    text NOT NULL,
    error           text,
    created_at      timestamptz NOT NULL,
    moved_at        timestamptz NOT NULL,
    ended_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, backfill_id)
);
COMMENT ON TABLE noetl.backfill IS 'Ranges of partitions that are built again, and how far they are; `version` is that of their stream.';
CREATE INDEX idx_backfill_open ON noetl.backfill (backfill_id, tenant_id, organization_id)
    WHERE status IN ('queueing', 'running', 'paused');

CREATE TABLE noetl.backfill_partition (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    backfill_id     bigint NOT NULL,
    ordinal         integer NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, backfill_id, ordinal)
);
COMMENT ON TABLE noetl.backfill_partition IS 'The partitions of backfills that have not ended, in the order they are made.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['data_invalidation', 'backfill', 'backfill_partition'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
    CREATE POLICY all_tenants ON noetl.backfill FOR SELECT TO noetl_reaper USING (true);
    GRANT SELECT ON noetl.backfill TO noetl_reaper;
END
$$;

-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE FUNCTION noetl.apply_invalidation_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta    jsonb := coalesce(said.meta::jsonb, '{}');
    context jsonb := coalesce(said.context::jsonb, '{}');
    own     bigint := substring(said.stream_id FROM 14)::bigint;
    nothing boolean;
BEGIN
    CASE said.event_type
    WHEN 'dataset.invalidated' THEN
        nothing := coalesce(context -> 'dependents', '{}') = '{}';
        INSERT INTO noetl.data_invalidation (tenant_id, organization_id, invalidation_id, dataset_uuid, dataset_version,
            scope, partition_key, row_filter, reason, note, requested_by, dependents, processed_by, status, created_at,
            closed_at)
        VALUES (said.tenant_id, said.organization_id, own, (meta ->> 'dataset_uuid')::uuid,
            (meta ->> 'dataset_version')::uuid, meta ->> 'scope', meta ->> 'partition_key', context -> 'row_filter',
            meta ->> 'reason', meta ->> 'note', meta ->> 'requested_by', coalesce(context -> 'dependents', '{}'), '{}',
            CASE WHEN nothing THEN 'closed' ELSE 'open' END, said.ingest_time,
            CASE WHEN nothing THEN said.ingest_time END)
        ON CONFLICT (tenant_id, organization_id, invalidation_id) DO NOTHING;
    WHEN 'invalidation.processed' THEN
        UPDATE noetl.data_invalidation
        SET processed_by = processed_by || jsonb_build_object(meta ->> 'generation',
                coalesce((processed_by ->> (meta ->> 'generation'))::integer, 0) + 1)
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND invalidation_id = own;
        UPDATE noetl.data_invalidation AS known SET status = 'closed', closed_at = said.ingest_time
        WHERE known.tenant_id = said.tenant_id AND known.organization_id = said.organization_id
          AND known.invalidation_id = own AND known.status = 'open' AND NOT EXISTS (
            SELECT FROM jsonb_each_text(known.dependents) AS d
            WHERE coalesce((known.processed_by ->> d.key)::integer, 0) < d.value::integer);
    ELSE -- it was closed without all of its tasks
        UPDATE noetl.data_invalidation
        SET status = 'closed', closed_at = said.ingest_time, closed_because = meta ->> 'because'
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND invalidation_id = own
          AND status = 'open';
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_invalidation_v1 IS 'Changes an invalidation as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_invalidation_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_backfill_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    own    bigint := substring(said.stream_id FROM 10)::bigint;
    first  integer := (meta ->> 'first')::integer;
    prefix text;
    keys   text;
BEGIN
    IF said.event_type = 'backfill.requested' THEN
        INSERT INTO noetl.backfill (tenant_id, organization_id, backfill_id, version, dag, job, generation,
            dataset_uuid, dataset_version, selection, keys_ref, total, queued, made, tasks, max_in_flight, status,
            requested_by, created_at, moved_at)
        VALUES (said.tenant_id, said.organization_id, own, said.stream_version, meta ->> 'dag', said.node_name,
            (meta ->> 'generation')::uuid, (meta ->> 'dataset_uuid')::uuid, (meta ->> 'dataset_version')::uuid,
            coalesce(said.context -> 'selection', '{}')::jsonb, said.payload_ref::jsonb, (meta ->> 'total')::integer,
            0, 0, 0, (meta ->> 'max_in_flight')::integer,
            CASE WHEN (meta ->> 'total')::integer = 0 THEN 'running' ELSE 'queueing' END,
            meta ->> 'requested_by', said.ingest_time, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, backfill_id) DO NOTHING;
        RETURN;
    END IF;
    IF said.event_type = 'backfill.queued' THEN
        -- Read once: within the statement the names of all partitions would be parsed again for each of them.
        prefix := said.context ->> 'prefix';
        keys := said.context ->> 'keys';
        INSERT INTO noetl.backfill_partition (tenant_id, organization_id, backfill_id, ordinal, partition_key)
        SELECT said.tenant_id, said.organization_id, own, first + k.place - 1, prefix || k.rest
        FROM string_to_table(keys, E'\n') WITH ORDINALITY AS k (rest, place);
    END IF;
    UPDATE noetl.backfill SET version = said.stream_version, moved_at = said.ingest_time,
        queued = queued + CASE said.event_type WHEN 'backfill.queued' THEN (meta ->> 'count')::integer ELSE 0 END,
        made = CASE said.event_type WHEN 'backfill.advanced' THEN (meta ->> 'made')::integer ELSE made END,
        tasks = tasks + CASE said.event_type WHEN 'backfill.advanced' THEN (meta ->> 'tasks')::integer ELSE 0 END,
        status = CASE said.event_type
            WHEN 'backfill.queued' THEN
                CASE WHEN status = 'queueing' AND queued + (meta ->> 'count')::integer >= total THEN 'running'
                     ELSE status END
            WHEN 'backfill.advanced' THEN status
            WHEN 'backfill.resumed' THEN CASE WHEN queued < total THEN 'queueing' ELSE 'running' END
            ELSE substring(said.event_type FROM 10) END,
        error = CASE said.event_type WHEN 'backfill.queued' THEN error WHEN 'backfill.advanced' THEN error
                                     ELSE said.error END,
        ended_at = CASE WHEN said.event_type IN ('backfill.cancelled', 'backfill.completed', 'backfill.failed')
                        THEN said.ingest_time ELSE ended_at END
    WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    IF said.event_type IN ('backfill.cancelled', 'backfill.completed', 'backfill.failed') THEN
        DELETE FROM noetl.backfill_partition
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_backfill_v1 IS 'Changes a backfill and its partitions as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_backfill_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_changes_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        -- Asked for in the key's order, so that no plan made without statistics reads a whole execution for one event.
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        IF starts_with(said.event_type, 'backfill.') THEN
            PERFORM noetl.apply_backfill_v1(said);
        ELSE
            PERFORM noetl.apply_invalidation_v1(said);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_changes_v1 IS 'Changes the rows of invalidations and backfills of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_changes_v1 FROM PUBLIC;
