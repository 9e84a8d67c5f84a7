-- Streaming views: their versions, which follow from events, and what they hold, which follows from what they read.

CREATE TABLE noetl.view_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    view            text COLLATE "C" NOT NULL,
    build           integer NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    code_digest     text COLLATE "C" NOT NULL,
    document        jsonb NOT NULL,
    bundle_ref      jsonb,
    sink            text NOT NULL,
    target_mark     text COLLATE "C" NOT NULL,
    status          text NOT NULL CHECK (status IN ('building', 'current', 'superseded', 'dropped')),
    attempt         integer NOT NULL,
    worker          text,
    lease_token     uuid,
    lease_until     timestamptz,
    last_heartbeat  timestamptz,
    available_at    timestamptz,
    error           text,
    deployed_by     text NOT NULL,
    deployed_at     timestamptz NOT NULL,
    activated_at    timestamptz,
    activated_mark  text COLLATE "C",
    ended_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, version_id)
);
COMMENT ON TABLE noetl.view_version IS 'The versions of streaming views: one serves, a newer one may be building beside it.';
CREATE INDEX idx_view_version_view ON noetl.view_version (view, tenant_id, organization_id);

CREATE TABLE noetl.view_row (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    key             text COLLATE "C" NOT NULL,
    value           jsonb NOT NULL,
    barrier         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, version_id, key)
);
COMMENT ON TABLE noetl.view_row IS 'The rows of views that are kept here, each with the barrier that changed it last.';

CREATE TABLE noetl.view_barrier (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    batch           bigint NOT NULL,
    since           text COLLATE "C" NOT NULL,
    mark            text COLLATE "C" NOT NULL,
    watermark       timestamptz,
    late            bigint NOT NULL,
    late_total      bigint NOT NULL,
    changed         bigint NOT NULL,
    removed         bigint NOT NULL,
    checkpoint      text COLLATE "C" NOT NULL,
    at              timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, version_id, batch)
);
COMMENT ON TABLE noetl.view_barrier IS 'Up to which mark a view was brought: the newest barrier, and those of earlier ones that left late rows out.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['view_version', 'view_row', 'view_barrier'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
END
$$;
CREATE POLICY all_tenants ON noetl.view_version FOR SELECT TO noetl_reaper USING (true);
GRANT SELECT ON noetl.view_version TO noetl_reaper;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.view_version TO noetl_runtime;
GRANT INSERT, UPDATE, DELETE ON noetl.view_row, noetl.view_barrier TO noetl_runtime;

CREATE FUNCTION noetl.apply_views_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
    own  uuid;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        meta := coalesce(said.meta::jsonb, '{}');
        own := (meta ->> 'version_id')::uuid;
        CASE said.event_type
        WHEN 'view.deployed' THEN
            -- What was building and never served gives way to the newer one.
            UPDATE noetl.view_version SET status = 'superseded', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND view = meta ->> 'view'
              AND status = 'building' AND version_id <> own;
            INSERT INTO noetl.view_version (tenant_id, organization_id, version_id, view, build, digest, code_digest,
                document, bundle_ref, sink, target_mark, status, attempt, available_at, deployed_by, deployed_at)
            VALUES (p_tenant, p_organization, own, meta ->> 'view', (meta ->> 'build')::integer, meta ->> 'digest',
                coalesce(meta ->> 'code_digest', ''), coalesce(said.context::jsonb -> 'document', '{}'),
                said.payload_ref::jsonb, meta ->> 'sink', meta ->> 'target', 'building', 0, said.ingest_time,
                coalesce(meta ->> 'by', ''), said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, version_id) DO NOTHING;
        WHEN 'view.claimed' THEN
            UPDATE noetl.view_version SET attempt = (meta ->> 'attempt')::integer, worker = meta ->> 'worker',
                lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = said.ingest_time,
                lease_until = said.ingest_time + make_interval(secs => (meta ->> 'lease_seconds')::double precision)
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND version_id = own;
        WHEN 'view.activated' THEN
            UPDATE noetl.view_version SET status = 'superseded', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND status = 'current' AND version_id <> own
              AND view = split_part(said.stream_id, '/', 2);
            UPDATE noetl.view_version SET status = 'current', activated_at = said.ingest_time,
                activated_mark = meta ->> 'mark'
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND version_id = own;
        WHEN 'view.dropped' THEN
            UPDATE noetl.view_version SET status = 'dropped', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND view = meta ->> 'view'
              AND status <> 'dropped';
        ELSE -- a run ended, well or not
            UPDATE noetl.view_version SET lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
                error = said.error, available_at = said.ingest_time
                    + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
            WHERE tenant_id = p_tenant AND organization_id = p_organization AND version_id = own
              AND status IN ('building', 'current') AND attempt = (meta ->> 'attempt')::integer;
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_views_v1 IS 'Changes the versions of views, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_views_v1 FROM PUBLIC;

CREATE OR REPLACE FUNCTION noetl.rows_around_v1(said text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN said = 'dataset.lineage_set' THEN 'lineage'
        WHEN said = 'dataset.invalidated' THEN 'changes'
        ELSE CASE split_part(said, '.', 1)
            WHEN 'alert' THEN 'alerts' WHEN 'delivery' THEN 'alerts'
            WHEN 'backfill' THEN 'changes' WHEN 'invalidation' THEN 'changes'
            WHEN 'pin' THEN 'pins' WHEN 'generation' THEN 'pins'
            WHEN 'query' THEN 'queries'
            WHEN 'schedule' THEN 'schedules' WHEN 'slot' THEN 'schedules' WHEN 'source' THEN 'schedules'
            WHEN 'view' THEN 'views'
        END
    END
$$;

CREATE OR REPLACE FUNCTION noetl.apply_work_v1(
    p_tenant text, p_organization text, p_work text[], p_now timestamptz, e_written boolean[],
    e_execution bigint[], e_event bigint[], e_time timestamptz[], e_parent bigint[], e_stage bigint[], e_frame bigint[],
    e_loop bigint[], e_index bigint[], e_type text[], e_catalog text[], e_node text[], e_command text[],
    e_shard_id text[], e_meta json[], e_context json[], e_payload_ref json[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    around text[];
    own    record;
BEGIN
    around := ARRAY(SELECT w.said FROM unnest(p_work) AS w (said) WHERE noetl.rows_around_v1(w.said) IS NOT NULL);
    IF cardinality(around) < cardinality(p_work) THEN
        PERFORM noetl.apply_open_work_v1(
            p_tenant, p_organization, ARRAY(SELECT unnest(p_work) EXCEPT SELECT unnest(around)), p_now, e_written,
            e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog, e_node,
            e_command, e_shard_id, e_meta, e_context, e_payload_ref);
    END IF;
    IF cardinality(around) = 0 THEN
        RETURN;
    END IF;
    FOR own IN
        SELECT noetl.rows_around_v1(e.said) AS rows, array_agg(e.execution ORDER BY e.place) AS runs,
               array_agg(e.event ORDER BY e.place) AS facts
        FROM unnest(e_written, e_type, e_execution, e_event) WITH ORDINALITY AS e (written, said, execution, event, place)
        WHERE e.written AND e.said = ANY (around) GROUP BY 1 ORDER BY 1
    LOOP
        CASE own.rows
        WHEN 'alerts' THEN PERFORM noetl.apply_alerts_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'changes' THEN PERFORM noetl.apply_changes_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'lineage' THEN PERFORM noetl.apply_lineage_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'pins' THEN PERFORM noetl.apply_pins_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'queries' THEN PERFORM noetl.apply_queries_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'schedules' THEN PERFORM noetl.apply_schedules_v1(p_tenant, p_organization, own.runs, own.facts);
        WHEN 'views' THEN PERFORM noetl.apply_views_v1(p_tenant, p_organization, own.runs, own.facts);
        END CASE;
    END LOOP;
END
$$;
