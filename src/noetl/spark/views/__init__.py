"""Streaming views in the driver: the query over the ledger, its batches, and the same query in one go to compare."""
