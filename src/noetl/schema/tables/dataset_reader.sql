CREATE TABLE noetl.dataset_reader (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_uuid    uuid NOT NULL,
    role            text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_uuid, role)
);
COMMENT ON TABLE noetl.dataset_reader IS 'The roles whose holders may read a dataset; one without rows is readable by its organization.';
