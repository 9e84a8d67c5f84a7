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
