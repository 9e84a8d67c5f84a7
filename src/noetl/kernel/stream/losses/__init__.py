"""Acknowledged events that are in neither the ledger nor the stream: found, recorded and reported.

Each publisher notes what was acknowledged in its `journal`; `journal_files` are these files on disk. `detection`
compares them with the ledger and the stream, and `recorded` keeps each loss in the database until somebody
acknowledges it.

Nothing here publishes an event again.
"""
