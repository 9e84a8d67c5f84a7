CREATE TABLE noetl.pending_leaf (
    shard          smallint NOT NULL,
    first_position bigint NOT NULL,
    events         integer NOT NULL,
    leaves         bytea NOT NULL,
    PRIMARY KEY (shard, first_position)
) WITH (toast_tuple_target = 8160);
ALTER TABLE noetl.pending_leaf ALTER COLUMN leaves SET STORAGE EXTERNAL;
COMMENT ON TABLE noetl.pending_leaf IS
    'The leaves of events that wait for the materializer, by their place among the waiting ones of the shard.';
