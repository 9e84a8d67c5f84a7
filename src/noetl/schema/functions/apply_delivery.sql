CREATE OR REPLACE FUNCTION noetl.apply_delivery(said noetl.event) RETURNS void
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
    WHEN 'delivery.delivered', 'delivery.failed' THEN
        UPDATE noetl.delivery SET available_at = NULL, lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
            status = CASE said.event_type WHEN 'delivery.delivered' THEN 'Delivered' WHEN 'delivery.failed' THEN 'Dead' END,
            error = said.error, ended_at = said.ingest_time, version = said.stream_version
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND delivery_id = own;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of deliveries after %s', said.event_type);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_delivery IS 'Changes a message about an alert as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_delivery FROM PUBLIC;
