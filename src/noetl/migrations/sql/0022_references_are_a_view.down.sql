DROP VIEW noetl.result_ref;
DROP TABLE noetl.payload_place;

-- Empty: `noetl projections rebuild` of that release fills it.
CREATE TABLE noetl.result_ref (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    ref_id          bigint NOT NULL,
    part            text COLLATE "C" NOT NULL DEFAULT 'payload',
    ref             text NOT NULL,
    execution_id    bigint NOT NULL,
    parent_ref_id   bigint,
    name            text,
    source_step     text,
    store_tier      text NOT NULL,
    physical_uri    text NOT NULL,
    content_type    text NOT NULL,
    bytes_size      bigint NOT NULL,
    sha256          text COLLATE "C" NOT NULL,
    compression     text NOT NULL,
    created_at      timestamptz NOT NULL,
    shard           smallint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, execution_id, ref_id, part),
    CONSTRAINT result_ref_part_check CHECK (part IN ('payload', 'fields')),
    CONSTRAINT result_ref_store_tier_check CHECK (store_tier IN (
        'memory', 'kv', 'disk', 'object', 's3', 'gcs', 'azure', 'db', 'duckdb', 'eventlog', 'minio', 'pvc'))
);
COMMENT ON TABLE noetl.result_ref IS 'Where each payload that an event refers to lies. ref_id is the event''s id.';
COMMENT ON COLUMN noetl.result_ref.physical_uri IS 'Actual place: s3://bucket/key, gs://bucket/key, az://…, file path.';
ALTER TABLE noetl.result_ref ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.result_ref FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.result_ref FOR SELECT TO noetl_runtime
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY all_tenants ON noetl.result_ref TO noetl_projector USING (true);
CREATE POLICY kept ON noetl.result_ref FOR SELECT TO noetl_retention USING (true);
GRANT SELECT ON noetl.result_ref TO noetl_runtime, noetl_projector, noetl_retention;
GRANT INSERT, UPDATE, DELETE ON noetl.result_ref TO noetl_projector;
