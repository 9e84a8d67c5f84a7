-- Data pipelines: DAG versions, jobs, datasets with their generations and partitions, tasks, cursors and the outbox; and
-- the people of an organization.
--
-- Every row follows from the events of one stream in their order (cursors: from the greatest version any task named), so
-- that folding the ledger gives them anew; all but the time a lease lasts, which heartbeats move, and the delivery marks
-- of the outbox. Nobody writes these rows but the append, in the transaction of the events that say so.
CREATE TABLE noetl.dag_version (
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    dag_version_id      uuid NOT NULL,
    dag                 text COLLATE "C" NOT NULL,
    yaml_hash           text COLLATE "C" NOT NULL,
    bundle_digest       text COLLATE "C" NOT NULL,
    code_digest         text COLLATE "C" NOT NULL,
    bundle_ref          jsonb NOT NULL,
    pointers            jsonb NOT NULL,
    publish             jsonb NOT NULL,
    built               jsonb NOT NULL,
    status              text NOT NULL CHECK (status IN ('building', 'ready', 'failed', 'active', 'retired')),
    error               text,
    deploy_execution_id bigint NOT NULL,
    created_at          timestamptz NOT NULL,
    ready_at            timestamptz,
    activated_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, dag_version_id)
);
COMMENT ON TABLE noetl.dag_version IS 'Versions of DAGs: what they are made of, their pointer sets, and how far they are.';
-- Indexes begin with what tells rows apart: one that began with the key's first columns would be taken for single rows
-- by a planner that has no statistics yet.
CREATE INDEX idx_dag_version_dag ON noetl.dag_version (dag, created_at, tenant_id, organization_id);
