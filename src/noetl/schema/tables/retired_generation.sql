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
