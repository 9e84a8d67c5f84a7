CREATE TABLE noetl.dag_current_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dag             text COLLATE "C" NOT NULL,
    dag_version_id  uuid NOT NULL,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dag)
);
COMMENT ON TABLE noetl.dag_current_version IS 'The version that serves readers: one row switches all datasets of a DAG at once.';
