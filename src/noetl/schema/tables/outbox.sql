CREATE TABLE noetl.outbox (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    outbox_id       uuid NOT NULL,
    kind            text COLLATE "C" NOT NULL CHECK (kind IN ('enqueue_task', 'route_event')),
    payload         jsonb NOT NULL,
    execution_id    bigint NOT NULL,
    available_at    timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    status          text NOT NULL DEFAULT 'Pending' CHECK (status IN ('Pending', 'Done', 'Dead')),
    attempts        integer NOT NULL DEFAULT 0,
    last_error      text,
    lease_token     uuid,
    lease_until     timestamptz,
    processed_at    timestamptz,
    PRIMARY KEY (tenant_id, organization_id, outbox_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.outbox IS 'What has to follow from an event: waking a worker, or routing a change to the jobs that read it.';
CREATE INDEX idx_outbox_pending ON noetl.outbox (kind, available_at, tenant_id, organization_id) WHERE status = 'Pending';
CREATE INDEX idx_outbox_execution ON noetl.outbox (execution_id, tenant_id, organization_id) WHERE status = 'Pending';
