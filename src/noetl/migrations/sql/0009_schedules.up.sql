-- Schedules and their slots. A slot is one planned moment of a schedule: its lease and its history in one row.
--
-- Both follow from the events of `schedule/<schedule_id>`, whose version arbitrates: of those who claim one moment the
-- first one's append stands. There is no state for a lease that ran out, and none for a retry that is due: a slot is stale
-- while it is RUNNING with `lease_until` in the past, and is tried again only if `next_retry_at` says when.

CREATE TABLE noetl.schedule (
    tenant_id             text COLLATE "C" NOT NULL,
    organization_id       text COLLATE "C" NOT NULL,
    schedule_id           uuid NOT NULL,
    name                  text COLLATE "C" NOT NULL,
    kind                  text NOT NULL CHECK (kind IN ('platform', 'source', 'playbook')),
    scope_kind            text COLLATE "C" NOT NULL,
    scope_id              text COLLATE "C" NOT NULL,
    target                jsonb NOT NULL,
    expression            text NOT NULL,
    timezone              text NOT NULL,
    mode                  text NOT NULL CHECK (mode IN ('latest_only', 'every_plan')),
    delay_seconds         double precision NOT NULL,
    catch_up_seconds      double precision NOT NULL,
    max_plans_per_tick    integer NOT NULL,
    run_timeout_seconds   double precision NOT NULL,
    stale_timeout_seconds double precision NOT NULL,
    heartbeat_seconds     double precision NOT NULL,
    max_attempts          integer NOT NULL,
    retry_backoff         jsonb NOT NULL,
    allow_stale_reentry   boolean NOT NULL,
    paused                boolean NOT NULL,
    next_plan             timestamptz,
    next_due              timestamptz,
    last_plan             timestamptz,
    skipped               bigint NOT NULL,
    created_at            timestamptz NOT NULL,
    changed_at            timestamptz NOT NULL,
    removed_at            timestamptz,
    version               bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, schedule_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.schedule IS 'What is started when. `next_due` is set while it is neither paused nor removed; `version` is its stream''s.';
CREATE INDEX idx_schedule_due ON noetl.schedule (next_due) WHERE next_due IS NOT NULL;

CREATE TABLE noetl.cron_slot (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    schedule_id     uuid NOT NULL,
    plan_time       timestamptz NOT NULL,
    status          text NOT NULL CHECK (status IN ('RUNNING', 'SUCCESS', 'FAILED')),
    attempt         integer NOT NULL,
    max_attempts    integer NOT NULL,
    manual          boolean NOT NULL,
    execution_id    bigint NOT NULL,
    run_id          bigint,
    next_retry_at   timestamptz,
    runner          text,
    lease_token     uuid,
    lease_until     timestamptz,
    last_heartbeat  timestamptz,
    started_at      timestamptz NOT NULL,
    finished_at     timestamptz,
    duration_ms     bigint,
    rows_affected   bigint,
    result          jsonb,
    error_code      text,
    error           text,
    skipped_reason  text,
    CHECK (attempt >= 1 AND max_attempts >= attempt),
    CHECK (duration_ms IS NULL OR duration_ms >= 0),
    -- Named for what it says: that each moment is claimed once.
    CONSTRAINT cron_slot_once PRIMARY KEY (tenant_id, organization_id, schedule_id, plan_time)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.cron_slot IS 'Planned moments that were claimed: lease and history. One that failed and has no `next_retry_at` is never run again.';
CREATE INDEX idx_cron_slot_retry ON noetl.cron_slot (next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX idx_cron_slot_lease ON noetl.cron_slot (lease_until) WHERE status = 'RUNNING';
CREATE INDEX idx_cron_slot_finished ON noetl.cron_slot (finished_at) WHERE status <> 'RUNNING';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['schedule', 'cron_slot'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I FOR SELECT TO noetl_reaper USING (true)', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime, noetl_reaper', name);
    END LOOP;
END
$$;
GRANT UPDATE (lease_until, last_heartbeat) ON noetl.cron_slot TO noetl_runtime;

-- A scheduler finds out which cron sources the current versions of all DAGs have.
CREATE POLICY all_tenants ON noetl.dag_current_version FOR SELECT TO noetl_reaper USING (true);
GRANT SELECT ON noetl.dag_current_version TO noetl_reaper;

-- What an event of a schedule's stream says, with all that any of them may say about a slot.
CREATE TYPE noetl.schedule_fact AS (
    schedule_id uuid, said text, execution_id bigint, version bigint, said_at timestamptz, error text,
    plan_time timestamptz, next_plan timestamptz, last_plan timestamptz, count bigint,
    attempt integer, max_attempts integer, worker text, lease_token uuid, lease_seconds double precision, manual boolean,
    run_id bigint, rows_affected bigint, skipped_reason text, error_code text, delay_seconds double precision,
    succeeded_before timestamptz, failed_before timestamptz, meta json, context json, result json
);
COMMENT ON TYPE noetl.schedule_fact IS 'An event of a schedule''s stream, read.';

-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE FUNCTION noetl.schedule_facts_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS noetl.schedule_fact[] LANGUAGE sql STABLE AS $$
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
        FROM noetl.event AS known
        WHERE known.execution_id = own.execution AND known.event_id >= own.event AND known.tenant_id = p_tenant
          AND known.organization_id = p_organization ORDER BY known.event_id LIMIT 1
    ) AS e
    CROSS JOIN LATERAL json_to_record(coalesce(e.meta, '{}')) AS m (plan_time timestamptz, next_plan timestamptz,
        last_plan timestamptz, count bigint, attempt integer, max_attempts integer, worker text, lease_token uuid,
        lease_seconds double precision, manual boolean, run_id bigint, rows_affected bigint, skipped_reason text,
        error_code text, delay_seconds double precision, succeeded_before timestamptz, failed_before timestamptz)
$$;
COMMENT ON FUNCTION noetl.schedule_facts_v1 IS 'The events of these ids, read, in their order.';
REVOKE ALL ON FUNCTION noetl.schedule_facts_v1 FROM PUBLIC;

CREATE FUNCTION noetl.put_schedule_v1(p_tenant text, p_organization text, own noetl.schedule_fact) RETURNS void
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
COMMENT ON FUNCTION noetl.put_schedule_v1 IS 'Makes a schedule, or changes it, as an event says.';
REVOKE ALL ON FUNCTION noetl.put_schedule_v1 FROM PUBLIC;

CREATE FUNCTION noetl.change_slot_v1(p_tenant text, p_organization text, own noetl.schedule_fact) RETURNS void
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
        UPDATE noetl.cron_slot SET status = CASE own.said WHEN 'slot.succeeded' THEN 'SUCCESS' ELSE 'FAILED' END,
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
    ELSE -- nothing but the schedule itself changes
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.change_slot_v1 IS 'Changes slots that stand, as an event of their schedule says.';
REVOKE ALL ON FUNCTION noetl.change_slot_v1 FROM PUBLIC;

CREATE FUNCTION noetl.is_plain_claim_v1(own noetl.schedule_fact, several uuid[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT own.said = 'slot.claimed' AND own.attempt = 1 AND own.next_plan IS NOT NULL
       AND own.schedule_id <> ALL (several)
$$;
COMMENT ON FUNCTION noetl.is_plain_claim_v1 IS
    'Tells whether this is the claim of a planned moment and nothing else happens to its schedule, as to several others.';
REVOKE ALL ON FUNCTION noetl.is_plain_claim_v1 FROM PUBLIC;

CREATE FUNCTION noetl.claim_slots_v1(
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
        FROM unnest(facts) AS f WHERE noetl.is_plain_claim_v1(f, several)
    )
    UPDATE noetl.schedule AS known SET
        version = own.versions[width_bucket(known.schedule_id, own.ids)],
        next_plan = own.coming[width_bucket(known.schedule_id, own.ids)],
        next_due = own.coming[width_bucket(known.schedule_id, own.ids)] + make_interval(secs => known.delay_seconds),
        last_plan = greatest(known.last_plan, own.plans[width_bucket(known.schedule_id, own.ids)])
    FROM own
    WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.schedule_id = ANY (own.ids)
$$;
COMMENT ON FUNCTION noetl.claim_slots_v1 IS 'Leases slots for the first time, and moves the schedules on that nothing else happens to.';
REVOKE ALL ON FUNCTION noetl.claim_slots_v1 FROM PUBLIC;

CREATE FUNCTION noetl.apply_schedules_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    facts   noetl.schedule_fact[] := noetl.schedule_facts_v1(p_tenant, p_organization, p_execution, p_event);
    own     noetl.schedule_fact;
    -- the schedules that more than one of them is about
    several uuid[] := ARRAY(SELECT f.schedule_id FROM unnest(facts) AS f GROUP BY 1 HAVING count(*) > 1);
BEGIN
    PERFORM noetl.claim_slots_v1(p_tenant, p_organization, facts, several);
    FOREACH own IN ARRAY facts LOOP
        CONTINUE WHEN noetl.is_plain_claim_v1(own, several);
        IF own.said IN ('schedule.created', 'schedule.changed') THEN
            PERFORM noetl.put_schedule_v1(p_tenant, p_organization, own);
            CONTINUE;
        ELSIF own.said <> 'slot.claimed' OR own.attempt > 1 THEN
            PERFORM noetl.change_slot_v1(p_tenant, p_organization, own);
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
COMMENT ON FUNCTION noetl.apply_schedules_v1 IS 'Changes the rows of schedules and their slots, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_schedules_v1 FROM PUBLIC;

-- What happens to a schedule or a slot belongs to no run that would have to end before its month may go.
CREATE OR REPLACE FUNCTION noetl.drop_event_partition_v1(p_partition text, p_ending text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    dropped  bigint;
    archived bigint;
    open_id  bigint;
BEGIN
    IF p_partition !~ '^event_[0-9]{4}_[0-9]{2}$' OR to_regclass('noetl.' || quote_ident(p_partition)) IS NULL THEN
        RAISE undefined_table USING MESSAGE = format('there is no droppable partition %s', p_partition);
    END IF;
    -- No append may slip in between the checks and the drop.
    EXECUTE format('LOCK TABLE noetl.%I IN SHARE MODE', p_partition);
    EXECUTE format('SELECT e.execution_id FROM noetl.%1$I AS e '
                   'GROUP BY e.tenant_id, e.organization_id, e.execution_id '
                   'HAVING bool_or(starts_with(e.stream_id, ''execution/'')) AND NOT bool_or(e.event_type = ANY ($1)) '
                   'LIMIT 1', p_partition) INTO open_id USING p_ending;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING MESSAGE = format('execution %s in %s has not ended', open_id, p_partition);
    END IF;
    EXECUTE format('SELECT count(*) FROM noetl.%I', p_partition) INTO dropped;
    SELECT coalesce(sum(a.events), 0) INTO archived FROM noetl.event_archive AS a
    WHERE a.partition = p_partition AND a.removed_at IS NULL;
    IF dropped <> archived THEN
        RAISE object_in_use USING
            MESSAGE = format('%s holds %s events, of which %s are archived', p_partition, dropped, archived);
    END IF;
    EXECUTE format('SELECT k.execution_id FROM noetl.idempotency_key AS k WHERE k.expires_at > now() '
                   'AND k.execution_id IN (SELECT e.execution_id FROM noetl.%I AS e) LIMIT 1', p_partition)
        INTO open_id;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('idempotency keys of execution %s in %s are still valid', open_id, p_partition);
    END IF;
    EXECUTE format('ALTER TABLE noetl.event DETACH PARTITION noetl.%I', p_partition);
    EXECUTE format('DROP TABLE noetl.%I', p_partition);
    UPDATE noetl.event_archive AS a SET dropped_at = clock_timestamp() WHERE a.partition = p_partition;
    RETURN dropped;
END
$$;
