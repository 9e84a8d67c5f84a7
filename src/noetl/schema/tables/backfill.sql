CREATE TABLE noetl.backfill (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    backfill_id     bigint NOT NULL,
    version         bigint NOT NULL,
    dag             text COLLATE "C" NOT NULL,
    job             text COLLATE "C" NOT NULL,
    generation      uuid NOT NULL,
    dataset_uuid    uuid NOT NULL,
    dataset_version uuid NOT NULL,
    selection       jsonb NOT NULL,
    keys_ref        jsonb NOT NULL,
    total           integer NOT NULL,
    queued          integer NOT NULL,
    made            integer NOT NULL,
    tasks           integer NOT NULL,
    max_in_flight   integer NOT NULL,
    status          text NOT NULL
        CHECK (status IN ('queueing', 'running', 'paused', 'cancelled', 'completed', 'failed')),
    requested_by    text NOT NULL,
    error           text,
    created_at      timestamptz NOT NULL,
    moved_at        timestamptz NOT NULL,
    ended_at        timestamptz,
    PRIMARY KEY (tenant_id, organization_id, backfill_id)
);
COMMENT ON TABLE noetl.backfill IS 'Ranges of partitions that are built again, and how far they are; `version` is that of their stream.';
CREATE INDEX idx_backfill_open ON noetl.backfill (backfill_id, tenant_id, organization_id)
    WHERE status IN ('queueing', 'running', 'paused');
