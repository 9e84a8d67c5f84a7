CREATE TABLE noetl.shard_holder (
    role         text NOT NULL CHECK (role IN ('relay', 'projector', 'materializer', 'shadow')),
    holder       text NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (role, holder)
);
COMMENT ON TABLE noetl.shard_holder IS 'Processes that want shards in a role, alive as long as they say so.';
