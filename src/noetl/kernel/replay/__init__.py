"""Replay: the ledger goes in, the state as it was at any position comes out, proven equal to the live projections.

::

      as_of       a position, event, time, mark or the head  ──►  a cut: one position per shard that is read
        │
        ▼
      snapshot    the newest valid one before the cut, if it holds what is asked for
        │
        ▼
      pages       the events after it, a page ahead of the fold
        │
        ▼
      folds       the same ones the live projector runs  ──►  rows, checksums
        │
        ▼
      verify      equal to the live rows at their checkpoints, or the first field that differs

**Who is authoritative.** The events. A snapshot only shortens the way: one that does not validate is skipped with a
warning and the next older one, or the first event, is where the fold begins. Nothing here writes to the ledger.

**What a snapshot leaves out.** Frames that ended before it: they are in the checksums but not among the rows. Whoever
asks for the rows of frames folds from the first event.

**What it costs.** One page of events, the rows still open, and the rows that were asked for are in memory, however long
the history is.
"""
