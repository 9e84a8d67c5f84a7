"""The relay: committed events go in, shard by shard in the order of their positions; messages of a stream come out.

`publisher` reads behind the cursor of each held shard, publishes, and then moves the cursor, so a crash repeats
messages under the same ids. `pending_events` publishes events that wait for the materializer. `progress` shows how
far each shard is published and read.

The relay never skips an event and never writes to the ledger.
"""
