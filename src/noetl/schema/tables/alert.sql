CREATE TABLE noetl.alert (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    alert_id        uuid NOT NULL,
    alert_key       text COLLATE "C" NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    rule            text COLLATE "C" NOT NULL,
    part            text COLLATE "C" NOT NULL,
    subject         text NOT NULL,
    severity        text NOT NULL CHECK (severity IN ('info', 'warning', 'error', 'critical')),
    title           text NOT NULL,
    message         text NOT NULL,
    status          text NOT NULL CHECK (status IN ('open', 'resolved')),
    occurrences     integer NOT NULL,
    evaluation      text NOT NULL,
    seen_event_id   bigint NOT NULL,
    about_execution_id bigint,
    execution_id    bigint NOT NULL,
    raised_event_id bigint NOT NULL,
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    resolved_at     timestamptz,
    resolution      text,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, alert_id)
);
COMMENT ON TABLE noetl.alert IS 'What rules found, one row each however often it was found; open until it no longer holds.';
CREATE INDEX idx_alert_open ON noetl.alert (rule, owner, part, tenant_id, organization_id) WHERE status = 'open';
CREATE INDEX idx_alert_raised ON noetl.alert (raised_event_id, tenant_id, organization_id);
