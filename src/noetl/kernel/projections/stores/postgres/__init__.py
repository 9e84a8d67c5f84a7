"""The projection store in PostgreSQL: rows of a batch and their checkpoint are written in one transaction.

`store` is the adapter. `row_writes` saves a batch or replaces a shard, `view` reads rows as one transaction sees
them, `broken_streams` keeps the streams that cannot be folded, and `held_shards` refuses a projector whose lease is
over.
"""
