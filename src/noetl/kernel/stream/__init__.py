"""Delivery of events to many readers: the port, its adapters and how an event travels in a message.

Events go in after they are committed, or, in the write path `stream`, before that; messages come out per shard, in
order, until a durable reader acknowledges them. `relay` fills the stream, `write_path` writes published events into
the ledger, `losses` finds acknowledged events that are gone.

A stream is delivery, not truth: it may lag, repeat, or be wiped and filled again.
"""
