"""`noetl stream`: how far the stream of events is filled and read, and whether it agrees with the ledger."""
