DROP INDEX noetl.idx_projection_status;
CREATE INDEX idx_projection_status
    ON noetl.projection (status, tenant_id, organization_id, projection, execution_id DESC);
