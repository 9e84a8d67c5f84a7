-- This month's partition of the ledger and the next two; the scheduler makes later ones in time.
SELECT noetl.ensure_event_partitions_ahead(2);
