-- The ledger: shard heads, stream heads, idempotency keys and the event table, with roles and row-level security.
-- Every table but `shard` carries tenant and organization, and every policy fails closed when the setting is missing.

CREATE SCHEMA IF NOT EXISTS noetl;

DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['noetl_runtime', 'noetl_projector', 'noetl_retention'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- roles belong to the whole server: another database of it made this one
        END;
        -- So that one login may take each role where a server has a single account for NoETL.
        -- From 16 on the creator of a role may grant it, but not take it, and need not inherit what it may see.
        IF current_setting('server_version_num')::integer < 160000 THEN
            IF NOT pg_has_role(current_user, role_name, 'MEMBER') THEN
                EXECUTE format('GRANT %I TO current_user', role_name);
            END IF;
        ELSIF NOT pg_has_role(current_user, role_name, 'SET') THEN
            EXECUTE format('GRANT %I TO current_user WITH SET TRUE, INHERIT FALSE', role_name);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA noetl TO %I', role_name);
    END LOOP;
END
$$;

CREATE FUNCTION noetl.tenant() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF(current_setting('noetl.tenant', true), '');
COMMENT ON FUNCTION noetl.tenant() IS 'The tenant of this transaction, or null, which matches no row.';

CREATE FUNCTION noetl.organization() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF(current_setting('noetl.organization', true), '');
COMMENT ON FUNCTION noetl.organization() IS 'The organization of this transaction, or null, which matches no row.';

CREATE FUNCTION noetl.snowflake_at(at timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
    RETURN (floor(extract(epoch FROM at) * 1000)::bigint - 1704067200000) << 22;
COMMENT ON FUNCTION noetl.snowflake_at(timestamptz) IS 'The lowest id that can be minted at that instant.';

CREATE TABLE noetl.shard (
    shard       smallint PRIMARY KEY,
    position    bigint NOT NULL DEFAULT 0,
    last_ingest timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard IS 'The head of each shard: the last position given out. Locked last in every append.';
INSERT INTO noetl.shard (shard) SELECT generate_series(0, 15);

CREATE TABLE noetl.stream (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    stream_id       text COLLATE "C" NOT NULL,
    version         bigint NOT NULL DEFAULT 0,
    shard           smallint NOT NULL,
    execution_id    bigint,
    PRIMARY KEY (tenant_id, organization_id, stream_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE noetl.stream IS 'The head of each stream: its last version. Written with its events, rebuildable from them.';
CREATE INDEX idx_stream_execution ON noetl.stream (execution_id) WHERE execution_id IS NOT NULL;

CREATE TABLE noetl.idempotency_key (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    content_digest  bytea NOT NULL,
    execution_id    bigint NOT NULL,
    event_id        bigint NOT NULL,
    ordinal         integer NOT NULL,
    event_ids       bigint[] NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, key)
);
COMMENT ON TABLE noetl.idempotency_key IS
    'What each key wrote first. The answer to a repetition is read from the event the key belongs to.';
CREATE INDEX idx_idempotency_key_expires ON noetl.idempotency_key (expires_at);

CREATE TABLE noetl.event (
    execution_id        bigint NOT NULL,
    event_id            bigint NOT NULL,
    position            bigint NOT NULL,
    stream_version      bigint NOT NULL,
    event_time          timestamptz NOT NULL,
    ingest_time         timestamptz NOT NULL,
    causation_id        bigint,
    parent_execution_id bigint,
    stage_id            bigint,
    frame_id            bigint,
    loop_id             bigint,
    current_index       bigint,
    schema_version      integer NOT NULL,
    shard               smallint NOT NULL,
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    stream_id           text COLLATE "C" NOT NULL,
    aggregate_type      text NOT NULL,
    aggregate_id        text NOT NULL,
    event_type          text COLLATE "C" NOT NULL,
    schema_name         text NOT NULL,
    producer            text NOT NULL,
    correlation_id      text,
    idempotency_key     text,
    catalog_id          text,
    node_name           text,
    node_type           text,
    status              text,
    command_id          text COLLATE "C",
    shard_id            text COLLATE "C",
    payload_sha256      text COLLATE "C",
    fields_sha256       text COLLATE "C",
    error               text,
    meta                json,
    context             json,
    result              json,
    current_item        json,
    payload_ref         json,
    fields_ref          json,
    CONSTRAINT event_pkey PRIMARY KEY (execution_id, event_id, tenant_id, organization_id),
    CONSTRAINT event_references_not_data CHECK (
        coalesce(octet_length(meta::text), 0) + coalesce(octet_length(context::text), 0)
        + coalesce(octet_length(result::text), 0) + coalesce(octet_length(current_item::text), 0) <= 65536
    )
) PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.event IS 'The ledger: every accepted fact, in commit order per shard. Rows are never changed.';

-- Tenants may use equal ids, so every key of theirs carries tenant and organization.
CREATE UNIQUE INDEX uidx_event_shard_position ON noetl.event (shard, position, execution_id);
CREATE UNIQUE INDEX uidx_event_stream_version
    ON noetl.event (stream_id, stream_version, execution_id, tenant_id, organization_id);
CREATE INDEX idx_event_execution_position ON noetl.event (execution_id, position);
CREATE UNIQUE INDEX uidx_event_command_issued_command_id
    ON noetl.event (execution_id, command_id, tenant_id, organization_id) WHERE event_type = 'command.issued';
CREATE UNIQUE INDEX uidx_event_loop_done_loop_id
    ON noetl.event (execution_id, loop_id, tenant_id, organization_id) WHERE event_type = 'loop.done';
CREATE UNIQUE INDEX uidx_event_loop_fanin_completed_loop_id
    ON noetl.event (execution_id, loop_id, tenant_id, organization_id) WHERE event_type = 'loop.fanin.completed';
CREATE INDEX idx_event_loop_id_type ON noetl.event (execution_id, loop_id, event_type) WHERE loop_id IS NOT NULL;
CREATE INDEX idx_event_payload ON noetl.event (payload_sha256) WHERE payload_sha256 IS NOT NULL;
CREATE INDEX idx_event_fields ON noetl.event (fields_sha256) WHERE fields_sha256 IS NOT NULL;

-- Ids below this bound were never minted (the first minutes of 2024): they are the organizations' root ids, whose
-- partition is never dropped.
CREATE TABLE noetl.event_root (LIKE noetl.event INCLUDING ALL);
ALTER TABLE noetl.event ATTACH PARTITION noetl.event_root FOR VALUES FROM (MINVALUE) TO (1099511627776);

CREATE FUNCTION noetl.ensure_event_partition_v1(p_execution_id bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month_start timestamptz := date_trunc(
        'month', to_timestamp(((p_execution_id >> 22) + 1704067200000) / 1000.0), 'UTC');
    month_end   timestamptz := ((month_start AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
    name        text := 'event_' || to_char(month_start AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF p_execution_id < 1099511627776 THEN
        RETURN 'event_root';
    END IF;
    IF to_regclass('noetl.' || quote_ident(name)) IS NOT NULL THEN
        RETURN name;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('noetl.event partitions'));
    IF to_regclass('noetl.' || quote_ident(name)) IS NULL THEN
        -- Attaching a finished table does not stop writers; creating it as a partition would.
        EXECUTE format('CREATE TABLE noetl.%I (LIKE noetl.event INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE noetl.event ATTACH PARTITION noetl.%I FOR VALUES FROM (%s) TO (%s)', name,
                       greatest(noetl.snowflake_at(month_start), 1099511627776),
                       -- The last month of all ends with the ids themselves.
                       CASE WHEN noetl.snowflake_at(month_end) < 0 THEN 'MAXVALUE'
                            ELSE noetl.snowflake_at(month_end)::text END);
    END IF;
    RETURN name;
END
$$;
COMMENT ON FUNCTION noetl.ensure_event_partition_v1(bigint) IS 'Makes the partition that an execution id belongs to.';

CREATE FUNCTION noetl.ensure_event_partitions_ahead_v1(p_months integer) RETURNS text[]
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(noetl.ensure_event_partition_v1(noetl.snowflake_at(now() + make_interval(months => ahead)))
                     ORDER BY ahead)
    FROM generate_series(0, least(greatest(p_months, 0), 120)) AS ahead
$$;
COMMENT ON FUNCTION noetl.ensure_event_partitions_ahead_v1(integer) IS 'Makes this month''s partition and the next ones.';

ALTER TABLE noetl.stream ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.stream FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.idempotency_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.idempotency_key FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.event ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.event FORCE ROW LEVEL SECURITY;

CREATE POLICY scoped ON noetl.stream TO noetl_runtime, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY scoped ON noetl.idempotency_key TO noetl_runtime, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY scoped ON noetl.event TO noetl_runtime, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY all_tenants ON noetl.event FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY all_tenants ON noetl.stream FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY all_tenants ON noetl.idempotency_key FOR SELECT TO noetl_retention USING (true);
CREATE POLICY expired ON noetl.idempotency_key FOR DELETE TO noetl_retention USING (expires_at < now());

-- So that every process can tell whether the schema is the one it was written for.
GRANT SELECT ON public.schema_revision TO noetl_runtime, noetl_projector, noetl_retention;
GRANT SELECT ON noetl.shard TO noetl_runtime, noetl_projector, noetl_retention;
GRANT SELECT ON noetl.event, noetl.stream TO noetl_runtime, noetl_projector, noetl_retention;
GRANT SELECT ON noetl.idempotency_key TO noetl_runtime, noetl_retention;
GRANT DELETE ON noetl.idempotency_key TO noetl_retention;
REVOKE ALL ON FUNCTION noetl.ensure_event_partition_v1(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION noetl.ensure_event_partitions_ahead_v1(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partition_v1(bigint) TO noetl_runtime, noetl_retention;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partitions_ahead_v1(integer) TO noetl_runtime, noetl_retention;

SELECT noetl.ensure_event_partitions_ahead_v1(2);
