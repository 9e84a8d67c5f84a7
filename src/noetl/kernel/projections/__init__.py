"""Projections: state derived from the ledger, disposable, and always provable.

**Who is authoritative.** The ledger, and nothing else. A projection row is a memo of what the events say; it may be
deleted at any time and comes back, byte for byte, from a fold over the events. The folds (`folds/`) are pure
functions. The live projector, replay, snapshots and bulk replay all run the same ones, so there is no second opinion
about what an event means.

::

      ledger, shard by shard, in position order
        │
        ▼
      upcast            an old schema becomes the newest one, step by step
        │
        ▼
      route             event type → folds → row ids
        │
        ├──────────────┬─────────────┬─────────────┬──────────────┬──────────────────────┐
        ▼              ▼             ▼             ▼              ▼                      ▼
      execution      stage         frame         loop           fanout        business_object/<name>
        │
        ▼
      rows that are open ──ended──▶ live: kept in the store   replay: checksum added, row forgotten

**How a row opens.** Every aggregate of an execution has its own stream with dense versions from 1, and its row is named
after that stream. Only the event that stands in that stream at version 1 opens the row. There is exactly one such event
in the ledger, so a row opens at most once, for ever. An event of another aggregate may change the row (a committed frame
moves its loop forward) but never makes it: an event for a row that is not there, and that does not open it, is ignored.

**How a row ends.** Some event is the last one that matters (`frame.committed`, `loop.done`, `playbook.completed`, ...).
From then on the row absorbs whatever comes: a late event changes no field, no counter, no position.

**Why a row may leave memory.** Replay of a large ledger drops ended rows and keeps only the sum of their checksums. That
is safe because a dropped row and an ended row answer every later event alike: the first is absent and cannot open again,
the second absorbs. So a replay that forgets, and a projector that keeps every row in its store, agree at every position.
Rows of business objects follow the user's own rules, may open twice, and are therefore never dropped.

**Why shards do not matter.** All streams of an execution live in one shard, and rows of an execution listen only to
streams under `execution/<id>`. A row is therefore fed from one shard, in one order, whatever the other shards do. For
business objects this is checked: a row that is fed from two shards is an error, not a coin toss.

**What happens on redelivery.** A state remembers the last position it folded in each shard and ignores everything at or
below it. Duplicates, repeated batches and a consumer that starts again too early change nothing. Gaps are fine: a reader
that asks for one execution sees only some of a shard's positions.

**What a checksum proves.** Each row has a BLAKE3 over its canonical JSON, its name, its owner and the fold's version.
Row checksums are summed modulo 2^256, so that their order does not matter and rows can be added one by one. Equal sums
and counts mean equal projections.
"""
