CREATE TABLE noetl.execution_head (
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    execution_id        bigint NOT NULL,
    parent_execution_id bigint,
    parent_command_id   text COLLATE "C",
    catalog_id          text COLLATE "C" NOT NULL,
    path                text NOT NULL,
    requested_at        timestamptz NOT NULL,
    deadline            timestamptz,
    PRIMARY KEY (tenant_id, organization_id, execution_id)
);
COMMENT ON TABLE noetl.execution_head IS 'Executions that have not ended.';
CREATE INDEX idx_execution_head_parent ON noetl.execution_head (parent_execution_id)
    WHERE parent_execution_id IS NOT NULL;
CREATE INDEX idx_execution_head_deadline ON noetl.execution_head (deadline) WHERE deadline IS NOT NULL;
