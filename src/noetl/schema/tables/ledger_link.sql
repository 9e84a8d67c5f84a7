-- One row per shard and call that wrote events there. Leaves outlive the events: archiving and erasure leave them alone.
CREATE TABLE noetl.ledger_link (
    shard          smallint NOT NULL,
    first_position bigint NOT NULL,
    events         integer NOT NULL,
    ingest_times   bytea NOT NULL,
    versions       bytea NOT NULL,
    leaves         bytea NOT NULL,
    link           bytea NOT NULL,
    PRIMARY KEY (shard, first_position)
) WITH (toast_tuple_target = 8160);
-- Digests do not compress, and up to two hundred of them stay in the row.
ALTER TABLE noetl.ledger_link ALTER COLUMN leaves SET STORAGE EXTERNAL;
COMMENT ON TABLE noetl.ledger_link IS
    'The chain of each shard: every call that wrote events, under a SHA-256 that covers the call and the link before it.';
COMMENT ON COLUMN noetl.ledger_link.ingest_times IS
    'Microseconds since 2000-01-01 UTC, 8 bytes each: one for all events, or one for each.';
COMMENT ON COLUMN noetl.ledger_link.versions IS
    'Stream versions as runs of 12 bytes: the first version of a run, and how many events it has.';
COMMENT ON COLUMN noetl.ledger_link.leaves IS 'The SHA-256 of each event, 32 bytes each, by position.';
COMMENT ON COLUMN noetl.ledger_link.link IS
    'SHA-256 of the previous link, the first position, the number of events, their times, versions and leaves.';
