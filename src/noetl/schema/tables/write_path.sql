-- The durability boundary can be moved: in the write path `stream` a change commits its rows and its events as waiting
-- ones; they are published, and reach the ledger through the materializer alone.
CREATE TABLE noetl.write_path (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    mode        text NOT NULL CHECK (mode IN ('ledger', 'stream', 'draining')),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A change belongs to a holder with a lease, so that one whose holder died is ended by another process.
    came_from   text CHECK (came_from IN ('ledger', 'stream')),
    wanted      text CHECK (wanted IN ('ledger', 'stream')),
    holder      text,
    lease_token uuid,
    lease_until timestamptz,
    CONSTRAINT write_path_held
        CHECK ((mode = 'draining') = (num_nulls(came_from, wanted, holder, lease_token, lease_until) = 0)
           AND (mode = 'draining' OR num_nonnulls(came_from, wanted, holder, lease_token, lease_until) = 0))
);
COMMENT ON TABLE noetl.write_path IS
    'How events reach the ledger now: by appends themselves, through the stream, or not at all for the moment of a change.';
COMMENT ON COLUMN noetl.write_path.came_from IS 'During a change: the way before it, to which it is put back if it fails.';
COMMENT ON COLUMN noetl.write_path.wanted IS 'During a change: the way to come.';
COMMENT ON COLUMN noetl.write_path.lease_token IS 'During a change: what its holder ends it with.';
INSERT INTO noetl.write_path (mode) VALUES ('ledger');
