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
