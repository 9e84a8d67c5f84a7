CREATE TABLE noetl.delivery (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    delivery_id     uuid NOT NULL,
    alert_id        uuid NOT NULL,
    channel         text COLLATE "C" NOT NULL,
    channel_kind    text NOT NULL,
    severity        text NOT NULL,
    occasion        text NOT NULL CHECK (occasion IN ('raised', 'resolved', 'test')),
    document        jsonb NOT NULL,
    status          text NOT NULL CHECK (status IN ('Pending', 'Sending', 'Delivered', 'Dead')),
    attempt         integer NOT NULL,
    max_attempts    integer NOT NULL,
    worker          text,
    lease_token     uuid,
    lease_until     timestamptz,
    last_heartbeat  timestamptz,
    available_at    timestamptz,
    expires_at      timestamptz,
    error           text,
    execution_id    bigint NOT NULL,
    created_event_id bigint NOT NULL,
    created_at      timestamptz NOT NULL,
    ended_at        timestamptz,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, delivery_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.delivery IS 'Messages about alerts, one for each channel; one that has `available_at` is still to be sent.';
CREATE INDEX idx_delivery_due ON noetl.delivery (available_at, tenant_id, organization_id) WHERE status = 'Pending';
CREATE INDEX idx_delivery_lease ON noetl.delivery (lease_until, tenant_id, organization_id) WHERE status = 'Sending';
CREATE INDEX idx_delivery_alert ON noetl.delivery (alert_id, tenant_id, organization_id);
CREATE INDEX idx_delivery_created ON noetl.delivery (created_event_id, tenant_id, organization_id);
