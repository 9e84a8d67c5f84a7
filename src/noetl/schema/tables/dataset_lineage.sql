-- Which column comes from which, in each generation of a dataset, and how far the outside was told about tasks.
CREATE TABLE noetl.dataset_lineage (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    version         bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    number          integer NOT NULL,
    lineage_hash    text COLLATE "C" NOT NULL,
    how             text NOT NULL,
    reason          text,
    job             text COLLATE "C" NOT NULL,
    inputs          jsonb NOT NULL,
    columns_ref     jsonb,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version)
);
COMMENT ON TABLE noetl.dataset_lineage IS 'What is known of where a generation comes from, each time more was; the greatest version holds.';
