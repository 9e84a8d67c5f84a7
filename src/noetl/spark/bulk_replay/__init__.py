"""Replay on Spark: an organization's events go in, shard by shard, what the folds make of them comes out, summed.

    organization   in the worker: plans shards, starts the program, adds up and compares
    program        in the driver: one task per shard, the longest first, no shuffle
    shard          in an executor: reads (`events`), decodes (`event_decoder`), folds, and sums one shard

An execution lives in one shard, and so does a row of the user's own folds. Only tallies, sums and the rows somebody
asked for leave an executor. A row that two shards claim is refused, as a single process refuses it.
"""
