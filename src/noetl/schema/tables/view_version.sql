-- Streaming views: their versions, which follow from events, and what they hold, which follows from what they read.
CREATE TABLE noetl.view_version (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    view            text COLLATE "C" NOT NULL,
    build           integer NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    code_digest     text COLLATE "C" NOT NULL,
    document        jsonb NOT NULL,
    bundle_ref      jsonb,
    sink            text NOT NULL,
    target_mark     text COLLATE "C" NOT NULL,
    status          text NOT NULL CHECK (status IN ('building', 'current', 'superseded', 'dropped')),
    attempt         integer NOT NULL,
    worker          text,
    lease_token     uuid,
    lease_until     timestamptz,
    last_heartbeat  timestamptz,
    available_at    timestamptz,
    error           text,
    deployed_by     text NOT NULL,
    deployed_at     timestamptz NOT NULL,
    activated_at    timestamptz,
    activated_mark  text COLLATE "C",
    ended_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, version_id)
);
COMMENT ON TABLE noetl.view_version IS 'The versions of streaming views: one serves, a newer one may be building beside it.';
CREATE INDEX idx_view_version_view ON noetl.view_version (view, tenant_id, organization_id);
