CREATE TABLE noetl.shard (
    shard       smallint PRIMARY KEY,
    position    bigint NOT NULL DEFAULT 0,
    last_ingest timestamptz NOT NULL DEFAULT '-infinity',
    chained_from bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard IS 'The head of each shard: the last position given out. Locked last in every append.';
COMMENT ON COLUMN noetl.shard.chained_from IS
    'The first position with a link; events before it were recorded by a schema that made none.';
INSERT INTO noetl.shard (shard) SELECT generate_series(0, 15);
