-- Appends arrive packed: one array of events, one of appends and one of fences instead of a parameter for each column,
-- which client and server unpack in a fraction of the time. One append alone, which is what a lone step and a lone fact
-- are, takes a short way of few statements; whatever is unusual about it is left to the long way, which decides all.
CREATE TYPE noetl.lease_fence AS (
    grp integer, table_name text, execution_id bigint, id text, attempt integer, token uuid, mode smallint
);
COMMENT ON TYPE noetl.lease_fence IS 'What a group relies on; the modes are those of `noetl.broken_fences`.';
