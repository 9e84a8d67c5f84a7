CREATE TYPE noetl.new_append AS (
    grp integer, slot integer, stream_id text, shard smallint, execution_id bigint, expected_version bigint,
    size integer, keys integer, digest bytea, event_ids bigint[], leaves bytea
);
COMMENT ON TYPE noetl.new_append IS
    'Events for the end of one stream; appends of one group stand or fall together. Slots number the distinct streams; leaves are the SHA-256 digests of the events, joined.';
