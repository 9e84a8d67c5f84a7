CREATE TABLE noetl.dataset (
    tenant_id             text COLLATE "C" NOT NULL,
    organization_id       text COLLATE "C" NOT NULL,
    dataset_uuid          uuid NOT NULL,
    name                  text COLLATE "C" NOT NULL,
    producer_dag          text COLLATE "C" NOT NULL,
    producer_job          text COLLATE "C" NOT NULL,
    producer_output_index integer NOT NULL,
    published             boolean NOT NULL,
    read_roles            text[] NOT NULL DEFAULT '{}',
    created_at            timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_uuid),
    -- Judged at the end: one deploy may let two datasets change their names.
    CONSTRAINT dataset_name_key UNIQUE (tenant_id, organization_id, name) DEFERRABLE INITIALLY DEFERRED
);
COMMENT ON TABLE noetl.dataset IS 'What jobs build, by name; its data are in its generations.';
