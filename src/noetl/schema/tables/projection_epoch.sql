CREATE TABLE noetl.projection_epoch (
    shard      smallint NOT NULL,
    epoch      bigint NOT NULL,
    position   bigint NOT NULL,
    executions jsonb NOT NULL,
    closed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    told       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (shard, epoch)
);
COMMENT ON TABLE noetl.projection_epoch IS
    'Barriers of projections: all events up to the position are in, and these executions moved since the last one.';
