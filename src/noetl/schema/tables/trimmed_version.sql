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
