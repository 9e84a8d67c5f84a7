-- Frames, steps and commands outnumber executions by far, nobody asks for them by status, and every one of them paid.
DROP INDEX noetl.idx_projection_status;
CREATE INDEX idx_projection_status
    ON noetl.projection (status, tenant_id, organization_id, execution_id DESC) WHERE projection = 'execution';
