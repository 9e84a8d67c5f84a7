CREATE TABLE noetl.shard_outbox (
    shard       smallint PRIMARY KEY,
    position    bigint NOT NULL DEFAULT 0,
    last_ingest timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard_outbox IS 'The head of each shard''s waiting events, numbered in the order of their commits.';
INSERT INTO noetl.shard_outbox (shard) SELECT generate_series(0, 15);
