"""Old months of the ledger: archived to the payload store, recorded as an event, dropped, and read through for ever.

    blockers ──► writing (spool, manifest) ──► events, rows ──► dropping        retention drives them, in this order
                        │ objects + manifest       │ one transaction
                        ▼                          ▼
                  payload store             partition.archived          reading, merge ◄── ledger/history

A partition is dropped only when all its executions have ended and every event of it was read back from its archive.
Whatever dies in between is repeated by the next run: objects are addressed by content, the event has its key.
"""
