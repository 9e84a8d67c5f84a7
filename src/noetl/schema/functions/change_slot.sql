CREATE OR REPLACE FUNCTION noetl.change_slot(p_tenant text, p_organization text, own noetl.schedule_fact) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    CASE own.said
    WHEN 'slot.claimed' THEN -- another time; the first time is above all a new row
        UPDATE noetl.cron_slot SET status = 'RUNNING', attempt = own.attempt, execution_id = own.execution_id,
            next_retry_at = NULL, runner = own.worker, lease_token = own.lease_token,
            lease_until = own.said_at + make_interval(secs => own.lease_seconds), last_heartbeat = own.said_at,
            started_at = own.said_at, finished_at = NULL, duration_ms = NULL, error_code = NULL, error = NULL
        WHERE tenant_id = p_tenant AND organization_id = p_organization AND schedule_id = own.schedule_id
          AND plan_time = own.plan_time;
    WHEN 'slot.succeeded', 'slot.attempt_failed', 'slot.abandoned', 'slot.failed' THEN
        UPDATE noetl.cron_slot SET status = CASE WHEN own.said = 'slot.succeeded' THEN 'SUCCESS'
                WHEN own.said IN ('slot.attempt_failed', 'slot.abandoned', 'slot.failed') THEN 'FAILED' END,
            lease_token = NULL, lease_until = NULL, last_heartbeat = NULL, finished_at = own.said_at,
            duration_ms = greatest(0, floor(extract(epoch FROM own.said_at - started_at) * 1000))::bigint,
            next_retry_at = CASE WHEN own.said IN ('slot.attempt_failed', 'slot.abandoned')
                                 THEN own.said_at + make_interval(secs => own.delay_seconds) END,
            run_id = coalesce(own.run_id, run_id), rows_affected = own.rows_affected,
            result = CASE own.said WHEN 'slot.succeeded' THEN coalesce(own.result, '{}')::jsonb END,
            skipped_reason = own.skipped_reason, error_code = own.error_code, error = own.error
        WHERE tenant_id = p_tenant AND organization_id = p_organization AND schedule_id = own.schedule_id
          AND plan_time = own.plan_time;
    WHEN 'slot.pruned' THEN
        DELETE FROM noetl.cron_slot
        WHERE tenant_id = p_tenant AND organization_id = p_organization AND schedule_id = own.schedule_id
          AND next_retry_at IS NULL AND (status = 'SUCCESS' AND finished_at < own.succeeded_before
                                         OR status = 'FAILED' AND finished_at < own.failed_before);
    WHEN 'slot.skipped', 'schedule.paused', 'schedule.resumed', 'schedule.removed' THEN
        NULL; -- nothing but the schedule itself changes
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of slots after %s', own.said);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.change_slot IS 'Changes slots that stand, as an event of their schedule says.';
REVOKE ALL ON FUNCTION noetl.change_slot FROM PUBLIC;
