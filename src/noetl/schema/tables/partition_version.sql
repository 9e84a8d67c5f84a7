CREATE TABLE noetl.partition_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    current         boolean NOT NULL,
    dropped         boolean NOT NULL,
    manifest_ref    jsonb,
    row_count       bigint NOT NULL,
    bytes           bigint NOT NULL,
    files           integer NOT NULL,
    schema_hash     text COLLATE "C",
    content_digest  text COLLATE "C",
    task_id         uuid NOT NULL,
    attempt         integer,
    committed_at    timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, partition_key, version)
);
COMMENT ON TABLE noetl.partition_version IS 'What was visible of a partition and when; `current` marks the greatest version.';
CREATE UNIQUE INDEX uidx_partition_version_current
    ON noetl.partition_version (dataset_version, partition_key, tenant_id, organization_id) WHERE current;
