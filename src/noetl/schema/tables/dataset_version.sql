CREATE TABLE noetl.dataset_version (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    dataset_version  uuid NOT NULL,
    dataset_uuid     uuid NOT NULL,
    generation       uuid NOT NULL,
    config_hash      text COLLATE "C" NOT NULL,
    storage_location text NOT NULL,
    partition_by     jsonb NOT NULL,
    range_start      bigint,
    range_end        bigint,
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version)
);
COMMENT ON TABLE noetl.dataset_version IS 'Generations: one build of a dataset each, written beside the others.';
CREATE INDEX idx_dataset_version_dataset ON noetl.dataset_version (dataset_uuid, tenant_id, organization_id);
CREATE INDEX idx_dataset_version_generation ON noetl.dataset_version (generation, tenant_id, organization_id);
