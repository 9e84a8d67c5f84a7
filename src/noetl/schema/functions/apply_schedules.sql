CREATE OR REPLACE FUNCTION noetl.apply_schedules(p_tenant text, p_organization text, events noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    facts   noetl.schedule_fact[] := noetl.schedule_facts(events);
    own     noetl.schedule_fact;
    -- the schedules that more than one of them is about
    several uuid[] := ARRAY(SELECT f.schedule_id FROM unnest(facts) AS f GROUP BY 1 HAVING count(*) > 1);
BEGIN
    PERFORM noetl.claim_slots(p_tenant, p_organization, facts, several);
    FOREACH own IN ARRAY facts LOOP
        CONTINUE WHEN noetl.is_plain_claim(own, several);
        IF own.said IN ('schedule.created', 'schedule.changed') THEN
            PERFORM noetl.put_schedule(p_tenant, p_organization, own);
            CONTINUE;
        ELSIF own.said <> 'slot.claimed' OR own.attempt > 1 THEN
            -- It names every type that may come here, and refuses any other.
            PERFORM noetl.change_slot(p_tenant, p_organization, own);
        END IF;
        -- What an event does not name stays as it is; all that happens to a schedule and its slots moves its version.
        UPDATE noetl.schedule AS known SET
            version = own.version,
            paused = CASE own.said WHEN 'schedule.paused' THEN true WHEN 'schedule.resumed' THEN false
                                   ELSE known.paused END,
            removed_at = CASE own.said WHEN 'schedule.removed' THEN own.said_at ELSE known.removed_at END,
            changed_at = CASE WHEN starts_with(own.said, 'schedule.') THEN own.said_at ELSE known.changed_at END,
            next_plan = coalesce(own.next_plan, known.next_plan),
            next_due = CASE WHEN own.said IN ('schedule.paused', 'schedule.removed') THEN NULL
                            WHEN own.next_plan IS NULL THEN known.next_due
                            ELSE own.next_plan + make_interval(secs => known.delay_seconds) END,
            last_plan = CASE WHEN own.said = 'slot.claimed' AND own.next_plan IS NOT NULL
                             THEN greatest(known.last_plan, own.plan_time)
                             WHEN own.said = 'slot.skipped' THEN greatest(known.last_plan, own.last_plan)
                             ELSE known.last_plan END,
            skipped = known.skipped + CASE own.said WHEN 'slot.skipped' THEN own.count ELSE 0 END
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.schedule_id = own.schedule_id;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_schedules IS
    'Changes the rows of schedules and their slots, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_schedules FROM PUBLIC;
