-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE OR REPLACE FUNCTION noetl.schedule_facts(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS noetl.schedule_fact[]
    LANGUAGE sql STABLE AS $$
    SELECT array_agg(ROW (substring(e.stream_id FROM 10)::uuid, e.event_type, e.execution_id, e.stream_version,
        e.ingest_time, e.error, m.plan_time, m.next_plan, m.last_plan, m.count, m.attempt, m.max_attempts, m.worker,
        m.lease_token, m.lease_seconds, m.manual, m.run_id, m.rows_affected, m.skipped_reason, m.error_code,
        m.delay_seconds, m.succeeded_before, m.failed_before, e.meta, e.context, e.result)::noetl.schedule_fact
        ORDER BY own.place)
    FROM unnest(p_execution, p_event) WITH ORDINALITY AS own (execution, event, place)
    CROSS JOIN LATERAL (
        -- Each asked for in the key's order, so that no plan made without statistics reads all events for one.
        SELECT known.stream_id, known.event_type, known.execution_id, known.stream_version, known.ingest_time,
               known.error, known.meta, known.context, known.result
        FROM noetl.known_event AS known
        WHERE known.execution_id = own.execution AND known.event_id >= own.event AND known.tenant_id = p_tenant
          AND known.organization_id = p_organization ORDER BY known.event_id LIMIT 1
    ) AS e
    CROSS JOIN LATERAL json_to_record(coalesce(e.meta, '{}')) AS m (plan_time timestamptz, next_plan timestamptz,
        last_plan timestamptz, count bigint, attempt integer, max_attempts integer, worker text, lease_token uuid,
        lease_seconds double precision, manual boolean, run_id bigint, rows_affected bigint, skipped_reason text,
        error_code text, delay_seconds double precision, succeeded_before timestamptz, failed_before timestamptz)
$$;
COMMENT ON FUNCTION noetl.schedule_facts IS 'The events of these ids, read, in their order.';
REVOKE ALL ON FUNCTION noetl.schedule_facts FROM PUBLIC;
