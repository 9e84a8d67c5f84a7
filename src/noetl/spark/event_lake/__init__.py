"""The event lake: all events of one organization as an ordinary dataset, written by Spark and committed in the ledger.

`sync`, `compaction` and `verification` are programs in the driver; they ask their worker to record things through
`worker_requests`. `facts/` are tables made of the events. The lake can be deleted and built again from the ledger.
"""
