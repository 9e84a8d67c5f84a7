"""Replay on Spark: an organization's events go in, shard by shard, what the folds make of them comes out, summed.

::

      program     one task per shard, the longest first, no shuffle      (in the driver)
        │
        ▼
      shard       one shard: read, fold, sum                             (in an executor)
        ├─ reading     events in index order, from the ledger or the event lake
        ├─ decoding    Arrow columns to events
        └─ stored      the other side of a comparison

An execution lives in one shard, and a row of the user's own folds in one too, so a shard is folded by itself. Only
tallies, sums and the rows somebody asked for leave an executor; whoever asked adds them up. A row that two shards claim
is noticed by its name, which every shard tells, and is then refused the way a single process refuses it.
"""
