CREATE TABLE noetl.materialized (
    stream_name    text NOT NULL,
    shard          smallint NOT NULL,
    sequence       bigint NOT NULL DEFAULT 0,
    stream_created text NOT NULL,
    written        bigint NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    message_id     text,
    PRIMARY KEY (stream_name, shard)
);
COMMENT ON TABLE noetl.materialized IS 'Up to which sequence of the stream the events of a shard are in the ledger.';
COMMENT ON COLUMN noetl.materialized.message_id IS 'The message that stood at the sequence when it was written.';
