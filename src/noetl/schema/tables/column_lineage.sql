CREATE TABLE noetl.column_lineage (
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    dataset_version     uuid NOT NULL,
    version             bigint NOT NULL,
    place               integer NOT NULL,
    output_dataset_uuid uuid NOT NULL,
    output_column       text COLLATE "C",
    input_dataset_uuid  uuid,
    input_column        text COLLATE "C",
    kind                text NOT NULL,
    how                 text NOT NULL,
    job                 text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_version, version, place)
);
COMMENT ON TABLE noetl.column_lineage IS 'Which column of a generation is made of which of its inputs; of lineage that is a payload there is none here.';
CREATE INDEX idx_column_lineage_input
    ON noetl.column_lineage (input_dataset_uuid, input_column, tenant_id, organization_id);
