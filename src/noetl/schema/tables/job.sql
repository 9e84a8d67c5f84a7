CREATE TABLE noetl.job (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    job_id             uuid NOT NULL,
    dag_version_id     uuid NOT NULL,
    dag                text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    generation         uuid NOT NULL,
    job_hash           text COLLATE "C" NOT NULL,
    activation         text NOT NULL,
    runtime            text NOT NULL,
    operator           text NOT NULL,
    execution_strategy text,
    update_strategy    text NOT NULL,
    max_concurrency    integer,
    max_attempts       integer NOT NULL,
    timeout_seconds    double precision,
    lease_seconds      double precision NOT NULL,
    definition         jsonb NOT NULL,
    inputs             jsonb NOT NULL,
    input_datasets     uuid[] NOT NULL,
    output_datasets    uuid[] NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, job_id)
);
COMMENT ON TABLE noetl.job IS 'The jobs of every version of a DAG; jobs of equal generation build the same data.';
CREATE UNIQUE INDEX uidx_job_version_name ON noetl.job (dag_version_id, name, tenant_id, organization_id);
CREATE INDEX idx_job_generation ON noetl.job (generation, tenant_id, organization_id);
