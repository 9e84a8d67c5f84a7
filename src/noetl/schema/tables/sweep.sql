CREATE TABLE noetl.sweep (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    items           bigint NOT NULL,
    bytes           bigint NOT NULL,
    until           timestamptz,
    swept_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, kind)
);
COMMENT ON TABLE noetl.sweep IS 'What was let go last of each kind; rows of history older than `until` may be missing.';
