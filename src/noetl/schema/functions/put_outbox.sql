-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE OR REPLACE FUNCTION noetl.put_outbox(said noetl.event, p_name text, p_kind text, p_payload jsonb, p_delay double precision)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO noetl.outbox (tenant_id, organization_id, outbox_id, kind, payload, execution_id, available_at, created_at)
    VALUES (said.tenant_id, said.organization_id,
            encode(substring(sha256(convert_to(p_name, 'UTF8')) FOR 16), 'hex')::uuid, p_kind, p_payload,
            said.execution_id, said.ingest_time + make_interval(secs => p_delay), said.ingest_time)
    -- A task that is cancelled and then retried by hand awaits the same attempt a second time.
    ON CONFLICT (tenant_id, organization_id, outbox_id) DO UPDATE
        SET execution_id = excluded.execution_id, available_at = excluded.available_at, created_at = excluded.created_at,
            status = 'Pending', attempts = 0, last_error = NULL, lease_token = NULL, lease_until = NULL,
            processed_at = NULL
$$;
COMMENT ON FUNCTION noetl.put_outbox IS
    'Records what has to follow from an event, under an id that its name alone decides.';
REVOKE ALL ON FUNCTION noetl.put_outbox FROM PUBLIC;
