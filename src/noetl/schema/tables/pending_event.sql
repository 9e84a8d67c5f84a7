CREATE TABLE noetl.pending_event (LIKE noetl.event INCLUDING ALL);
COMMENT ON TABLE noetl.pending_event IS
    'Events that are decided and not in the ledger yet; their position is the place among the waiting ones of the shard.';
