CREATE TABLE noetl.dag_version_dataset (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dag_version_id  uuid NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dag_version_id, dataset_uuid)
);
COMMENT ON TABLE noetl.dag_version_dataset IS 'The pointer sets: which generation of each dataset a version of a DAG has.';
CREATE INDEX idx_dag_version_dataset_generation
    ON noetl.dag_version_dataset (dataset_version, tenant_id, organization_id);
