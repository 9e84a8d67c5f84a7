-- Alerts: the rules and channels people apply, the alerts that were raised, and the messages about them.
CREATE TABLE noetl.alert_rules (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    rules           jsonb NOT NULL,
    channels        jsonb NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    applied_at      timestamptz NOT NULL,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, name)
);
COMMENT ON TABLE noetl.alert_rules IS 'Rules and channels of alerts that are in use, by the name they were applied under.';
