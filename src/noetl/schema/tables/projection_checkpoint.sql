CREATE TABLE noetl.projection_checkpoint (
    shard      smallint PRIMARY KEY,
    position   bigint NOT NULL DEFAULT 0,
    folds      json,
    failure    json,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.projection_checkpoint IS 'How far each shard is projected; written with the rows.';
COMMENT ON COLUMN noetl.projection_checkpoint.folds IS
    'Versions of the folds that made the rows, by projection; null before the first. Rows of other folds are never mixed in.';
COMMENT ON COLUMN noetl.projection_checkpoint.failure IS 'Why the shard stands still at this position, if it does.';
INSERT INTO noetl.projection_checkpoint (shard) SELECT generate_series(0, 15);
