-- What is kept whatever its age, and what was let go: pins, policies, sweeps, and the tombstones of data.
--
-- Rows of pipelines stay when their data go: the tombstones beside them tell readers so. Only history that nobody
-- decides by is deleted, after an event that says up to which age.

CREATE TABLE noetl.pin (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    pin_id          uuid NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('dataset', 'execution', 'mark')),
    dataset_uuid    uuid,
    execution_id    bigint,
    mark            text COLLATE "C",
    note            text NOT NULL,
    until           timestamptz,
    created_by      text NOT NULL,
    created_at      timestamptz NOT NULL,
    released_by     text,
    released_at     timestamptz,
    PRIMARY KEY (tenant_id, organization_id, pin_id)
);
COMMENT ON TABLE noetl.pin IS 'What somebody wants kept whatever its age: a dataset or all of them at a mark, or an execution.';

CREATE TABLE noetl.retention_policy (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    policy          jsonb NOT NULL,
    set_by          text NOT NULL,
    set_at          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id)
);
COMMENT ON TABLE noetl.retention_policy IS 'How long an organization keeps what, where it differs from the settings.';

CREATE TABLE noetl.sweep (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    items           bigint NOT NULL,
    bytes           bigint NOT NULL,
    until           timestamptz,
    swept_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, kind)
);
COMMENT ON TABLE noetl.sweep IS 'What was let go last of each kind; rows of history older than `until` may be missing.';

CREATE TABLE noetl.retired_generation (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    dataset_version  uuid NOT NULL,
    dataset_uuid     uuid NOT NULL,
    generation       uuid NOT NULL,
    reason           text NOT NULL,
    served_until     timestamptz,
    retired_at       timestamptz NOT NULL,
    purged_at        timestamptz,
    files_removed_at timestamptz,
    PRIMARY KEY (tenant_id, organization_id, dataset_version)
);
COMMENT ON TABLE noetl.retired_generation IS 'Generations that cannot serve again; of those with `purged_at` nothing is kept.';
CREATE INDEX idx_retired_generation_dataset ON noetl.retired_generation (dataset_uuid, tenant_id, organization_id);
CREATE INDEX idx_retired_generation_generation ON noetl.retired_generation (generation, tenant_id, organization_id);

CREATE TABLE noetl.trimmed_version (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    dataset_version  uuid NOT NULL,
    partition_key    text COLLATE "C" NOT NULL,
    version          bigint NOT NULL,
    dataset_uuid     uuid NOT NULL,
    reason           text NOT NULL,
    trimmed_at       timestamptz NOT NULL,
    files_removed_at timestamptz,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, partition_key, version)
);
COMMENT ON TABLE noetl.trimmed_version IS 'Versions of partitions whose files are gone or about to go.';
CREATE INDEX idx_trimmed_version_dataset ON noetl.trimmed_version (dataset_uuid, tenant_id, organization_id);
CREATE INDEX idx_trimmed_version_open ON noetl.trimmed_version (dataset_version, tenant_id, organization_id)
    WHERE files_removed_at IS NULL;

CREATE TABLE noetl.payload_hold (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, digest)
);
COMMENT ON TABLE noetl.payload_hold IS 'Payloads that rows still need although the archive of the events that brought them was removed.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['pin', 'retention_policy', 'sweep', 'retired_generation', 'trimmed_version',
                                'payload_hold'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['retention_policy', 'pin'] LOOP
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_retention USING (true)', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_retention', name);
    END LOOP;
END
$$;
GRANT UPDATE (files_removed_at) ON noetl.retired_generation, noetl.trimmed_version TO noetl_runtime;
GRANT INSERT, DELETE ON noetl.payload_hold TO noetl_runtime;

CREATE FUNCTION noetl.apply_pins_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        meta := coalesce(said.meta::jsonb, '{}');
        CASE said.event_type
        WHEN 'pin.policy_set' THEN
            INSERT INTO noetl.retention_policy (tenant_id, organization_id, policy, set_by, set_at)
            VALUES (p_tenant, p_organization, coalesce(said.context::jsonb -> 'policy', '{}'),
                coalesce(meta ->> 'by', ''), said.ingest_time)
            ON CONFLICT (tenant_id, organization_id) DO UPDATE
                SET policy = excluded.policy, set_by = excluded.set_by, set_at = excluded.set_at;
        WHEN 'pin.created' THEN
            INSERT INTO noetl.pin (tenant_id, organization_id, pin_id, kind, dataset_uuid, execution_id, mark, note,
                until, created_by, created_at)
            VALUES (p_tenant, p_organization, (meta ->> 'pin_id')::uuid, meta ->> 'kind',
                (meta ->> 'dataset_uuid')::uuid, (meta ->> 'execution_id')::bigint, meta ->> 'mark',
                coalesce(meta ->> 'note', ''), (meta ->> 'until')::timestamptz, coalesce(meta ->> 'by', ''),
                said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, pin_id) DO NOTHING;
        WHEN 'pin.released' THEN
            UPDATE noetl.pin SET released_at = said.ingest_time, released_by = coalesce(meta ->> 'by', '')
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND pin_id = (meta ->> 'pin_id')::uuid
              AND released_at IS NULL;
        WHEN 'pin.swept' THEN
            INSERT INTO noetl.sweep AS known (tenant_id, organization_id, kind, items, bytes, until, swept_at)
            VALUES (p_tenant, p_organization, meta ->> 'kind', (meta ->> 'items')::bigint,
                coalesce((meta ->> 'bytes')::bigint, 0), (meta ->> 'until')::timestamptz, said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, kind) DO UPDATE
                SET items = excluded.items, bytes = excluded.bytes, swept_at = excluded.swept_at,
                    until = greatest(known.until, excluded.until);
        WHEN 'generation.trimmed' THEN
            INSERT INTO noetl.trimmed_version (tenant_id, organization_id, dataset_version, partition_key, version,
                dataset_uuid, reason, trimmed_at)
            SELECT p_tenant, p_organization, (meta ->> 'dataset_version')::uuid, gone ->> 0, (gone ->> 1)::bigint,
                (meta ->> 'dataset_uuid')::uuid, meta ->> 'reason', said.ingest_time
            FROM jsonb_array_elements(said.context::jsonb -> 'versions') AS gone
            ON CONFLICT (tenant_id, organization_id, dataset_version, partition_key, version) DO NOTHING;
        ELSE -- a generation was retired or purged
            INSERT INTO noetl.retired_generation (tenant_id, organization_id, dataset_version, dataset_uuid, generation,
                reason, served_until, retired_at, purged_at)
            VALUES (p_tenant, p_organization, (meta ->> 'dataset_version')::uuid, (meta ->> 'dataset_uuid')::uuid,
                (meta ->> 'generation')::uuid, meta ->> 'reason', (meta ->> 'served_until')::timestamptz,
                said.ingest_time, CASE said.event_type WHEN 'generation.purged' THEN said.ingest_time END)
            ON CONFLICT (tenant_id, organization_id, dataset_version) DO UPDATE
                SET reason = excluded.reason, purged_at = excluded.purged_at;
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_pins_v1 IS 'Changes the rows of what is kept whatever its age, and what was removed, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_pins_v1 FROM PUBLIC;

CREATE FUNCTION noetl.gone_generations_v1() RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.generation FROM noetl.retired_generation AS r GROUP BY r.generation
    HAVING count(r.purged_at) = (SELECT count(*) FROM noetl.dataset_version AS g WHERE g.generation = r.generation)
$$;
COMMENT ON FUNCTION noetl.gone_generations_v1 IS 'The builds of jobs of which nothing is kept, of no output.';
REVOKE ALL ON FUNCTION noetl.gone_generations_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.gone_generations_v1 TO noetl_runtime;

-- Deletes only what an event of the organization allows, so that nobody can delete what it does not name.
CREATE FUNCTION noetl.sweep_rows_v1(p_kind text, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    allowed timestamptz := (SELECT s.until FROM noetl.sweep AS s WHERE s.kind = p_kind);
    old     uuid[];
    gone    bigint := 0;
BEGIN
    CASE p_kind
    WHEN 'outbox' THEN
        DELETE FROM noetl.outbox WHERE outbox_id IN (
            SELECT o.outbox_id FROM noetl.outbox AS o
            WHERE o.status = 'Done' AND o.created_at < allowed AND o.processed_at < allowed LIMIT p_limit);
        GET DIAGNOSTICS gone = ROW_COUNT;
    WHEN 'tasks' THEN
        old := ARRAY(SELECT t.task_id FROM noetl.task AS t
                     WHERE t.generation IN (SELECT noetl.gone_generations_v1()) AND t.ended_at < allowed
                       AND t.available_at IS NULL LIMIT p_limit);
        DELETE FROM noetl.task_input WHERE task_id = ANY (old);
        DELETE FROM noetl.task WHERE task_id = ANY (old);
        GET DIAGNOSTICS gone = ROW_COUNT;
    WHEN 'queries' THEN
        DELETE FROM noetl.query_audit WHERE query_id IN (
            SELECT q.query_id FROM noetl.query_audit AS q WHERE q.asked_at < allowed LIMIT p_limit);
        GET DIAGNOSTICS gone = ROW_COUNT;
    END CASE;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION noetl.sweep_rows_v1 IS 'Deletes rows of history that are older than the last sweep of their kind allows, some at a time.';
REVOKE ALL ON FUNCTION noetl.sweep_rows_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.sweep_rows_v1 TO noetl_runtime;
