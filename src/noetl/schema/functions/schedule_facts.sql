CREATE OR REPLACE FUNCTION noetl.schedule_facts(facts noetl.event[]) RETURNS noetl.schedule_fact[]
    LANGUAGE sql STABLE AS $$
    SELECT array_agg(ROW (substring(e.stream_id FROM 10)::uuid, e.event_type, e.execution_id, e.stream_version,
        e.ingest_time, e.error, m.plan_time, m.next_plan, m.last_plan, m.count, m.attempt, m.max_attempts, m.worker,
        m.lease_token, m.lease_seconds, m.manual, m.run_id, m.rows_affected, m.skipped_reason, m.error_code,
        m.delay_seconds, m.succeeded_before, m.failed_before, e.meta, e.context, e.result)::noetl.schedule_fact
        ORDER BY e.ordinality)
    FROM unnest(facts) WITH ORDINALITY AS e
    CROSS JOIN LATERAL json_to_record(coalesce(e.meta, '{}')) AS m (plan_time timestamptz, next_plan timestamptz,
        last_plan timestamptz, count bigint, attempt integer, max_attempts integer, worker text, lease_token uuid,
        lease_seconds double precision, manual boolean, run_id bigint, rows_affected bigint, skipped_reason text,
        error_code text, delay_seconds double precision, succeeded_before timestamptz, failed_before timestamptz)
$$;
COMMENT ON FUNCTION noetl.schedule_facts IS 'Events of schedules with the fields of all their types, in their order.';
REVOKE ALL ON FUNCTION noetl.schedule_facts FROM PUBLIC;
