CREATE TABLE noetl.stage (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    execution_id    bigint NOT NULL,
    stage_id        bigint NOT NULL,
    loop_id         bigint,
    step_name       text NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('loop', 'fanout', 'reduce')),
    total_rows      bigint,
    next_index      bigint NOT NULL DEFAULT 0,
    frames_minted   bigint NOT NULL DEFAULT 0,
    frames_open     bigint NOT NULL DEFAULT 0,
    frames_failed   bigint NOT NULL DEFAULT 0,
    rows_done       bigint NOT NULL DEFAULT 0,
    rows_failed     bigint NOT NULL DEFAULT 0,
    errors          bigint NOT NULL DEFAULT 0,
    ctx             jsonb NOT NULL DEFAULT '{}',
    frame_policy    jsonb NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, execution_id, stage_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE noetl.stage IS 'Stages that are open: how far their rows are handed out and what came of them.';
