"""The `subscription` kind: takes a bounded batch of messages from a broker.

`batch` is the promise, `kafka`, `nats` and `pubsub` are the brokers. Messages are acknowledged only once the step's end
is recorded.
"""
