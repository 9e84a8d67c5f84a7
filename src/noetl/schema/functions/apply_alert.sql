CREATE OR REPLACE FUNCTION noetl.apply_alert(said noetl.event) RETURNS void
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
    WHEN 'alert.resolved' THEN
        UPDATE noetl.alert SET status = 'resolved', evaluation = meta ->> 'evaluation',
            seen_event_id = coalesce((meta ->> 'seen_event_id')::bigint, 0),
            resolved_at = said.ingest_time, resolution = coalesce(meta ->> 'reason', ''),
            version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
          AND alert_id = (meta ->> 'alert_id')::uuid;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of alerts after %s', said.event_type);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_alert IS 'Changes the rows of rules and alerts as an event says.';
REVOKE ALL ON FUNCTION noetl.apply_alert FROM PUBLIC;
