CREATE TABLE noetl.org (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    name            text NOT NULL,
    tenant_name     text NOT NULL,
    settings        jsonb NOT NULL,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id)
);
COMMENT ON TABLE noetl.org IS 'Organizations that were given a name.';
