-- What is kept whatever its age, and what was let go: pins, policies, sweeps, and the tombstones of data.
--
-- Rows of pipelines stay when their data go: the tombstones beside them tell readers so. Only history that nobody
-- decides by is deleted, after an event that says up to which age.
CREATE TABLE noetl.pin (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    pin_id          uuid NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('dataset', 'execution', 'mark')),
    dataset_uuid    uuid,
    execution_id    bigint,
    mark            text COLLATE "C",
    note            text NOT NULL,
    until           timestamptz,
    created_by      text NOT NULL,
    created_at      timestamptz NOT NULL,
    released_by     text,
    released_at     timestamptz,
    PRIMARY KEY (tenant_id, organization_id, pin_id)
);
COMMENT ON TABLE noetl.pin IS 'What somebody wants kept whatever its age: a dataset or all of them at a mark, or an execution.';
