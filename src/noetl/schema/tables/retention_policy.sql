CREATE TABLE noetl.retention_policy (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    policy          jsonb NOT NULL,
    set_by          text NOT NULL,
    set_at          timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id)
);
COMMENT ON TABLE noetl.retention_policy IS 'How long an organization keeps what, where it differs from the settings.';
