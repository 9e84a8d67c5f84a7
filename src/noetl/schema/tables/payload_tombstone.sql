-- The only way into the ledger. One call takes many appends of one organization, decides each, numbers the survivors
-- and writes them; a caller can neither choose positions nor change a row.
--
-- Lock order, the same for every caller: idempotency keys sorted, streams sorted, shard heads ascending, and nothing
-- that may block after a head. Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other
-- content, 4 recorded already, 5 payload collected.
CREATE TABLE noetl.payload_tombstone (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    sha256          text COLLATE "C" NOT NULL,
    condemned_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at      timestamptz, -- when the object was gone: what is stored after that is safe from the collector
    PRIMARY KEY (tenant_id, organization_id, sha256)
);
COMMENT ON TABLE noetl.payload_tombstone IS
    'Objects that garbage collection took or is about to take. No event may refer to them until they are stored again.';
