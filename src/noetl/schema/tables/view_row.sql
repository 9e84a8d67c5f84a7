CREATE TABLE noetl.view_row (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    key             text COLLATE "C" NOT NULL,
    value           jsonb NOT NULL,
    barrier         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, version_id, key)
);
COMMENT ON TABLE noetl.view_row IS 'The rows of views that are kept here, each with the barrier that changed it last.';
