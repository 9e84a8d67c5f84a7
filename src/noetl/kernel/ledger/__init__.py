"""The only truth: append, read, wait.

    appenders ──► committer ──► noetl.append ──────────────► noetl.event
                  (one per        keys sorted                    (shard, position):
                   process,        │ streams sorted               dense, in commit order
                   gathers)        │ shard heads ascending, last
                                   ▼
                                 commit ──► notifier ──► LISTEN ──► readers at (shard, position)

Who is authoritative: the committed rows of `noetl.event` and nothing else. Stream heads (`noetl.stream`), shard heads
(`noetl.shard`) and idempotency keys are written in the same transaction and can be rebuilt from the events.

Why readers may trust positions: an append takes its shard's head row last and holds it until commit, so the next
writer of that shard numbers its events only after the former ones are visible. Ids are minted long before commit and
are never used as a cursor.

When things fail:
- A client dies before commit: PostgreSQL rolls back, its numbers are given to the next writer; no gap.
- A client is paused while it holds a head: only transactions with inline rows can, and the server ends them after
  `idle_in_transaction_session_timeout`. The group commit is one statement and cannot be paused by its client.
- The connection dies during commit: the outcome is unknown, so the same events are sent again; the primary key shows
  whether they stand already.
- A notification is lost: readers look by themselves once per poll interval.
"""
