CREATE TABLE noetl.dataset_schema (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    schema          jsonb NOT NULL,
    schema_hash     text COLLATE "C" NOT NULL,
    change          text NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version)
);
COMMENT ON TABLE noetl.dataset_schema IS 'The columns of a generation, each time they changed; the greatest version holds.';
