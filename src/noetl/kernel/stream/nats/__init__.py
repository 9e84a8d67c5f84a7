"""The stream in NATS JetStream: messages go to one file-backed stream, and come back through one consumer per shard.

`stream` is the adapter behind `noetl.kernel.stream.port`. `publisher` sends batches, `subscription` reads as a
durable with `consumers` and `deliveries`, `message_lookup` finds stored messages, `hints` is a key-value bucket. All
share one `connection`, which translates every error of the client once.
"""
