"""Who writes projections in this process, into which stores, and the checkpoints that tell the ledger of it."""
