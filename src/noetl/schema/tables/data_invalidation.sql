-- Invalidations, which say that rows of a dataset are wrong, and backfills, which build partitions of a range again.
--
-- Both are named by their run. The partitions of a backfill stand in the order they are made: those before `made` have
-- been given to tasks, so that moving one number moves any number of partitions.
CREATE TABLE noetl.data_invalidation (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    invalidation_id bigint NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    scope           text NOT NULL CHECK (scope IN ('partition', 'row_range')),
    partition_key   text COLLATE "C",
    row_filter      jsonb,
    reason          text NOT NULL CHECK (reason IN ('correction', 'reorg', 'manual', 'schema_change')),
    note            text,
    requested_by    text NOT NULL,
    dependents      jsonb NOT NULL,
    processed_by    jsonb NOT NULL,
    status          text NOT NULL CHECK (status IN ('open', 'closed')),
    closed_because  text,
    created_at      timestamptz NOT NULL,
    closed_at       timestamptz,
    PRIMARY KEY (tenant_id, organization_id, invalidation_id)
);
COMMENT ON TABLE noetl.data_invalidation IS
    'Rows that were said to be wrong: how many tasks of which generations follow from it, and how many of them are done.';
CREATE INDEX idx_data_invalidation_open ON noetl.data_invalidation (dataset_uuid, tenant_id, organization_id)
    WHERE status = 'open';
