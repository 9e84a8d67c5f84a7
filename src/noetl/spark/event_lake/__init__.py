"""The event lake: all events of one organization as an ordinary dataset, written by Spark and committed in the ledger."""
