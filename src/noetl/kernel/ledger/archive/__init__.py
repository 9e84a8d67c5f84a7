"""Old months of the ledger: archived to the payload store, recorded as an event, dropped, and still readable.

    partition ──► writer (spool, manifest) ──► rows ──► deletion          retention runs them in this order
                        │ objects + manifest    │ one transaction
                        ▼                       ▼
                  payload store          partition.archived          reader ◄── ledger/history

A partition is dropped only when all its executions have ended and every event of it was read back from its archive.
A crash costs nothing but time: the next run repeats the step. Objects are addressed by content, the event has its
key.
"""
