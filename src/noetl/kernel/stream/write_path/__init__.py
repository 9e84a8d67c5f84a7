"""The write path through the stream: published events go in, rows of the ledger come out.

`facts` publishes events that decide nothing, and `materializer` writes them, shard by shard. `shadow` makes the same
rows without writing them and records what differs. `written_messages` says which messages are in the ledger and
waits for the rest, `backlog` counts what is accepted and not written yet.

Nothing here changes an event, and no event is acknowledged to the stream before it is committed.
"""
