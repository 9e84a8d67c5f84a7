CREATE TABLE noetl.stream_durable (
    name       text NOT NULL,
    durable    text NOT NULL,
    shard      smallint NOT NULL,
    position   bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, durable, shard)
);
COMMENT ON TABLE noetl.stream_durable IS 'What durable readers of the ledger as a stream have acknowledged.';
