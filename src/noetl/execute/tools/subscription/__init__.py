"""The `subscription` kind: takes a bounded batch of messages from a broker, acknowledged once the step's end is recorded."""
