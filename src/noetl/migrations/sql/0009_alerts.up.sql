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

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['alert_rules', 'alert', 'delivery'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_reaper USING (true)', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_reaper', name);
    END LOOP;
END
$$;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.delivery TO noetl_runtime;

CREATE FUNCTION noetl.apply_alert_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta    jsonb := coalesce(said.meta::jsonb, '{}');
    context jsonb := coalesce(said.context::jsonb, '{}');
BEGIN
    CASE said.event_type
    WHEN 'alert.rules_applied' THEN
        INSERT INTO noetl.alert_rules (tenant_id, organization_id, name, rules, channels, digest, applied_at, version)
        VALUES (said.tenant_id, said.organization_id, meta ->> 'name', coalesce(context -> 'rules', '[]'),
            coalesce(context -> 'channels', '{}'), meta ->> 'digest', said.ingest_time, said.stream_version)
        ON CONFLICT (tenant_id, organization_id, name) DO UPDATE
            SET rules = excluded.rules, channels = excluded.channels, digest = excluded.digest,
                applied_at = excluded.applied_at, version = excluded.version;
    WHEN 'alert.rules_removed' THEN
        DELETE FROM noetl.alert_rules WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND name = meta ->> 'name';
    WHEN 'alert.raised' THEN
        INSERT INTO noetl.alert AS known (tenant_id, organization_id, alert_id, alert_key, owner, rule, part, subject,
            severity, title, message, status, occurrences, evaluation, seen_event_id, about_execution_id, execution_id,
            raised_event_id, first_seen, last_seen, version)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'alert_id')::uuid, meta ->> 'alert_key',
            meta ->> 'owner', meta ->> 'rule', coalesce(meta ->> 'part', ''), meta ->> 'subject',
            meta ->> 'severity', context ->> 'title', coalesce(context ->> 'message', ''), 'open', 1,
            meta ->> 'evaluation', coalesce((meta ->> 'seen_event_id')::bigint, 0), (meta ->> 'about')::bigint,
            said.execution_id, said.event_id, said.ingest_time, said.ingest_time, said.stream_version)
        ON CONFLICT (tenant_id, organization_id, alert_id) DO UPDATE
            SET part = excluded.part, severity = excluded.severity, title = excluded.title,
                message = excluded.message, status = 'open', occurrences = known.occurrences + 1,
                evaluation = excluded.evaluation, seen_event_id = excluded.seen_event_id,
                about_execution_id = excluded.about_execution_id, execution_id = excluded.execution_id,
                raised_event_id = excluded.raised_event_id, last_seen = excluded.last_seen, resolved_at = NULL,
                resolution = NULL, version = excluded.version;
    ELSE -- it is resolved
        UPDATE noetl.alert SET status = 'resolved', evaluation = meta ->> 'evaluation',
            seen_event_id = coalesce((meta ->> 'seen_event_id')::bigint, 0),
            resolved_at = said.ingest_time, resolution = coalesce(meta ->> 'reason', ''),
            version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
          AND alert_id = (meta ->> 'alert_id')::uuid;
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_alert_v1 IS 'Changes the rows of rules and alerts as an event says.';
REVOKE ALL ON FUNCTION noetl.apply_alert_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_delivery_v1(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta jsonb := coalesce(said.meta::jsonb, '{}');
    own  uuid := substring(said.stream_id FROM 10)::uuid;
BEGIN
    CASE said.event_type
    WHEN 'delivery.created' THEN
        INSERT INTO noetl.delivery (tenant_id, organization_id, delivery_id, alert_id, channel, channel_kind, severity,
            occasion, document, status, attempt, max_attempts, available_at, expires_at, execution_id, created_event_id,
            created_at, version)
        VALUES (said.tenant_id, said.organization_id, own, (meta ->> 'alert_id')::uuid, meta ->> 'channel',
            meta ->> 'channel_kind', meta ->> 'severity', meta ->> 'occasion',
            coalesce(said.context::jsonb -> 'document', '{}'), 'Pending', 0, (meta ->> 'max_attempts')::integer,
            said.ingest_time, said.ingest_time + make_interval(secs => (meta ->> 'expires_seconds')::double precision),
            said.execution_id, said.event_id, said.ingest_time, said.stream_version)
        ON CONFLICT (tenant_id, organization_id, delivery_id) DO NOTHING;
    WHEN 'delivery.claimed' THEN
        UPDATE noetl.delivery SET status = 'Sending', attempt = (meta ->> 'attempt')::integer,
            worker = meta ->> 'worker', lease_token = (meta ->> 'lease_token')::uuid,
            lease_until = said.ingest_time + make_interval(secs => (meta ->> 'lease_seconds')::double precision),
            last_heartbeat = said.ingest_time, version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND delivery_id = own;
    WHEN 'delivery.attempt_failed' THEN
        UPDATE noetl.delivery SET status = 'Pending', error = said.error, lease_token = NULL, lease_until = NULL,
            last_heartbeat = NULL, version = said.stream_version, available_at = said.ingest_time
                + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND delivery_id = own;
    WHEN 'delivery.rearmed' THEN
        UPDATE noetl.delivery SET status = 'Pending', available_at = said.ingest_time, expires_at = NULL,
            max_attempts = max_attempts + (meta ->> 'extra_attempts')::integer, execution_id = said.execution_id,
            ended_at = NULL, version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND delivery_id = own;
    ELSE -- it has ended
        UPDATE noetl.delivery SET available_at = NULL, lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            status = CASE said.event_type WHEN 'delivery.delivered' THEN 'Delivered' ELSE 'Dead' END,
            error = said.error, ended_at = said.ingest_time, version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND delivery_id = own;
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_delivery_v1 IS 'Changes a message about an alert as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_delivery_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_alerts_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        IF starts_with(said.event_type, 'delivery.') THEN
            PERFORM noetl.apply_delivery_v1(said);
        ELSE
            PERFORM noetl.apply_alert_v1(said);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_alerts_v1 IS 'Changes the rows of alerts and their deliveries, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_alerts_v1 FROM PUBLIC;
