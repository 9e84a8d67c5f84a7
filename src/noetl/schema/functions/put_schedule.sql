CREATE OR REPLACE FUNCTION noetl.put_schedule(p_tenant text, p_organization text, own noetl.schedule_fact) RETURNS void
    LANGUAGE sql AS $$
    INSERT INTO noetl.schedule AS known (tenant_id, organization_id, schedule_id, name, kind, scope_kind, scope_id,
        target, expression, timezone, mode, delay_seconds, catch_up_seconds, max_plans_per_tick, run_timeout_seconds,
        stale_timeout_seconds, heartbeat_seconds, max_attempts, retry_backoff, allow_stale_reentry, paused, next_plan,
        next_due, skipped, created_at, changed_at, version)
    SELECT p_tenant, p_organization, own.schedule_id, m.name, m.kind, m.scope_kind, m.scope_id,
        coalesce(own.context -> 'target', '{}')::jsonb, m.expression, m.timezone, m.mode, m.delay_seconds,
        m.catch_up_seconds, m.max_plans_per_tick, m.run_timeout_seconds, m.stale_timeout_seconds, m.heartbeat_seconds,
        m.max_attempts, coalesce(own.context -> 'retry_backoff', '[]')::jsonb, coalesce(m.allow_stale_reentry, true), false,
        own.next_plan, own.next_plan + make_interval(secs => m.delay_seconds), 0, own.said_at, own.said_at, own.version
    FROM json_to_record(own.meta) AS m (name text, kind text, scope_kind text, scope_id text, expression text,
        timezone text, mode text, delay_seconds double precision, catch_up_seconds double precision,
        max_plans_per_tick integer, run_timeout_seconds double precision, stale_timeout_seconds double precision,
        heartbeat_seconds double precision, max_attempts integer, allow_stale_reentry boolean)
    ON CONFLICT (tenant_id, organization_id, schedule_id) DO UPDATE
        SET kind = excluded.kind, target = excluded.target, expression = excluded.expression,
            timezone = excluded.timezone, mode = excluded.mode, delay_seconds = excluded.delay_seconds,
            catch_up_seconds = excluded.catch_up_seconds, max_plans_per_tick = excluded.max_plans_per_tick,
            run_timeout_seconds = excluded.run_timeout_seconds,
            stale_timeout_seconds = excluded.stale_timeout_seconds, heartbeat_seconds = excluded.heartbeat_seconds,
            max_attempts = excluded.max_attempts, retry_backoff = excluded.retry_backoff,
            allow_stale_reentry = excluded.allow_stale_reentry, next_plan = excluded.next_plan,
            paused = known.paused AND known.removed_at IS NULL,
            next_due = CASE WHEN known.paused AND known.removed_at IS NULL THEN NULL ELSE excluded.next_due END,
            changed_at = excluded.changed_at, removed_at = NULL, version = excluded.version
$$;
COMMENT ON FUNCTION noetl.put_schedule IS 'Makes a schedule, or changes it, as an event says.';
REVOKE ALL ON FUNCTION noetl.put_schedule FROM PUBLIC;
