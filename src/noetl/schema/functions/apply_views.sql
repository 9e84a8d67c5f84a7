CREATE OR REPLACE FUNCTION noetl.apply_views(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
    own  uuid;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        meta := coalesce(said.meta::jsonb, '{}');
        own := (meta ->> 'version_id')::uuid;
        CASE said.event_type
        WHEN 'view.deployed' THEN
            -- What was building and never served gives way to the newer one.
            UPDATE noetl.view_version SET status = 'superseded', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND view = meta ->> 'view'
              AND status = 'building' AND version_id <> own;
            INSERT INTO noetl.view_version (tenant_id, organization_id, version_id, view, build, digest, code_digest,
                document, bundle_ref, sink, target_mark, status, attempt, available_at, deployed_by, deployed_at)
            VALUES (said.tenant_id, said.organization_id, own, meta ->> 'view', (meta ->> 'build')::integer, meta ->> 'digest',
                coalesce(meta ->> 'code_digest', ''), coalesce(said.context::jsonb -> 'document', '{}'),
                said.payload_ref::jsonb, meta ->> 'sink', meta ->> 'target', 'building', 0, said.ingest_time,
                coalesce(meta ->> 'by', ''), said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, version_id) DO NOTHING;
        WHEN 'view.claimed' THEN
            UPDATE noetl.view_version SET attempt = (meta ->> 'attempt')::integer, worker = meta ->> 'worker',
                lease_token = (meta ->> 'lease_token')::uuid, last_heartbeat = said.ingest_time,
                lease_until = said.ingest_time + make_interval(secs => (meta ->> 'lease_seconds')::double precision)
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND version_id = own;
        WHEN 'view.activated' THEN
            UPDATE noetl.view_version SET status = 'superseded', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND status = 'current' AND version_id <> own
              AND view = split_part(said.stream_id, '/', 2);
            UPDATE noetl.view_version SET status = 'current', activated_at = said.ingest_time,
                activated_mark = meta ->> 'mark'
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND version_id = own;
        WHEN 'view.dropped' THEN
            UPDATE noetl.view_version SET status = 'dropped', ended_at = said.ingest_time, available_at = NULL,
                lease_token = NULL, lease_until = NULL, last_heartbeat = NULL
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND view = meta ->> 'view'
              AND status <> 'dropped';
        WHEN 'view.released', 'view.attempt_failed' THEN
            UPDATE noetl.view_version SET lease_token = NULL, lease_until = NULL, last_heartbeat = NULL,
                error = said.error, available_at = said.ingest_time
                    + make_interval(secs => coalesce((meta ->> 'delay_seconds')::double precision, 0))
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND version_id = own
              AND status IN ('building', 'current') AND attempt = (meta ->> 'attempt')::integer;
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of views after %s', said.event_type);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_views IS 'Changes the versions of views, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_views FROM PUBLIC;
