CREATE TABLE noetl.divergence (
    shard      smallint PRIMARY KEY,
    sequence   bigint NOT NULL DEFAULT 0,
    seen       bigint NOT NULL DEFAULT 0,
    equal      bigint NOT NULL DEFAULT 0,
    missing    bigint NOT NULL DEFAULT 0,
    different  bigint NOT NULL DEFAULT 0,
    redelivered bigint NOT NULL DEFAULT 0,
    first      jsonb,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    began      bigint NOT NULL DEFAULT 0,
    compared   bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE noetl.divergence IS
    'What a materializer in shadow found: rows it would have written alike, rows the ledger lacks, and rows that differ.';
COMMENT ON COLUMN noetl.divergence.began IS 'The head of the shard when the shadow began there.';
COMMENT ON COLUMN noetl.divergence.compared IS 'Events behind that head that were compared, whatever came of it.';
