CREATE TABLE noetl.task (
    tenant_id        text COLLATE "C" NOT NULL,
    organization_id  text COLLATE "C" NOT NULL,
    task_id          uuid NOT NULL,
    job_id           uuid NOT NULL,
    dag_version_id   uuid NOT NULL,
    dag              text COLLATE "C" NOT NULL,
    job              text COLLATE "C" NOT NULL,
    generation       uuid NOT NULL,
    execution_id     bigint NOT NULL,
    dedupe_key       text COLLATE "C" NOT NULL,
    partition_key    text COLLATE "C" NOT NULL,
    status           text NOT NULL
        CHECK (status IN ('Queued', 'Running', 'Completed', 'Skipped', 'Failed', 'Canceled')),
    attempt          integer NOT NULL,
    max_attempts     integer NOT NULL,
    runtime          text COLLATE "C" NOT NULL,
    memo_key         text COLLATE "C",
    inputs           jsonb NOT NULL,
    inputs_ref       jsonb,
    worker           text,
    lease_token      uuid,
    lease_seconds    double precision NOT NULL,
    lease_until      timestamptz,
    last_heartbeat   timestamptz,
    available_at     timestamptz,
    cancel_requested boolean NOT NULL,
    application_id   text,
    job_tag          text,
    error            text,
    outputs          jsonb,
    logs_ref         jsonb,
    skipped_as       uuid,
    created_event_id bigint NOT NULL,
    created_at       timestamptz NOT NULL,
    started_at       timestamptz,
    ended_at         timestamptz,
    PRIMARY KEY (tenant_id, organization_id, task_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.task IS 'Units of jobs'' work. One that has `available_at` is open: it waits, runs, or will be tried again.';
CREATE UNIQUE INDEX uidx_task_dedupe ON noetl.task (generation, dedupe_key, tenant_id, organization_id);
CREATE INDEX idx_task_free ON noetl.task (runtime, available_at, created_event_id, tenant_id, organization_id)
    WHERE available_at IS NOT NULL AND lease_token IS NULL;
CREATE INDEX idx_task_running ON noetl.task (generation, tenant_id, organization_id) WHERE status = 'Running';
CREATE INDEX idx_task_execution ON noetl.task (execution_id, available_at, tenant_id, organization_id);
CREATE INDEX idx_task_memo ON noetl.task (memo_key, tenant_id, organization_id) WHERE status = 'Completed';
