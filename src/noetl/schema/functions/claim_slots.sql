CREATE OR REPLACE FUNCTION noetl.claim_slots(
    p_tenant text, p_organization text, facts noetl.schedule_fact[], several uuid[]
) RETURNS void
    LANGUAGE sql AS $$
    -- Thousands of slots may be claimed at once. Nothing can be said of a slot before its first claim, so that all first
    -- claims come before everything else; one of a slot that stands already breaks the key and with it the append.
    INSERT INTO noetl.cron_slot (tenant_id, organization_id, schedule_id, plan_time, status, attempt, max_attempts,
        manual, execution_id, runner, lease_token, lease_until, last_heartbeat, started_at)
    SELECT p_tenant, p_organization, f.schedule_id, f.plan_time, 'RUNNING', f.attempt, f.max_attempts,
        coalesce(f.manual, false), f.execution_id, f.worker, f.lease_token,
        f.said_at + make_interval(secs => f.lease_seconds), f.said_at, f.said_at
    FROM unnest(facts) AS f WHERE f.said = 'slot.claimed' AND f.attempt = 1;
    -- Their schedules are asked for by a list of keys, and what each gets is found in it by its place: a join that was
    -- planned without statistics would go through all schedules for each of them.
    WITH own AS MATERIALIZED (
        SELECT array_agg(f.schedule_id ORDER BY f.schedule_id) AS ids,
               array_agg(f.version ORDER BY f.schedule_id) AS versions,
               array_agg(f.plan_time ORDER BY f.schedule_id) AS plans,
               array_agg(f.next_plan ORDER BY f.schedule_id) AS coming
        FROM unnest(facts) AS f WHERE noetl.is_plain_claim(f, several)
    )
    UPDATE noetl.schedule AS known SET
        version = own.versions[width_bucket(known.schedule_id, own.ids)],
        next_plan = own.coming[width_bucket(known.schedule_id, own.ids)],
        next_due = own.coming[width_bucket(known.schedule_id, own.ids)] + make_interval(secs => known.delay_seconds),
        last_plan = greatest(known.last_plan, own.plans[width_bucket(known.schedule_id, own.ids)])
    FROM own
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.schedule_id = ANY (own.ids)
$$;
COMMENT ON FUNCTION noetl.claim_slots IS
    'Leases slots for the first time, and moves the schedules on that nothing else happens to.';
REVOKE ALL ON FUNCTION noetl.claim_slots FROM PUBLIC;
