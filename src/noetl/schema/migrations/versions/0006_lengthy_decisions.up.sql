CREATE TABLE noetl.decision_begun (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    execution_id    bigint NOT NULL,
    version         bigint NOT NULL,
    times           integer NOT NULL,
    begun_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, execution_id)
);
COMMENT ON TABLE noetl.decision_begun IS
    'Lengthy decisions that were begun and have not come to their end, so that none is tried for ever.';
COMMENT ON COLUMN noetl.decision_begun.version IS 'The version of the execution''s stream that they decide on.';
-- policies.sql
ALTER TABLE noetl.decision_begun ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.decision_begun FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.decision_begun TO noetl_runtime
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
GRANT SELECT, INSERT, UPDATE, DELETE ON noetl.decision_begun TO noetl_runtime;
