CREATE TABLE noetl.relay_cursor (
    stream_name    text NOT NULL,
    shard          smallint NOT NULL,
    position       bigint NOT NULL DEFAULT 0,
    stream_created text,
    stream_sequence bigint NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream_name, shard)
);
COMMENT ON TABLE noetl.relay_cursor IS
    'Up to which position a shard was published to a stream, to which making of it, and how far that had acknowledged.';
