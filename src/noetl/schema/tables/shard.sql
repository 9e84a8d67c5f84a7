CREATE TABLE noetl.shard (
    shard       smallint PRIMARY KEY,
    position    bigint NOT NULL DEFAULT 0,
    last_ingest timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard IS 'The head of each shard: the last position given out. Locked last in every append.';
INSERT INTO noetl.shard (shard) SELECT generate_series(0, 15);
