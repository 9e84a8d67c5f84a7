"""The embedded NATS server of `noetl dev --nats`, and who logs in at any NATS server."""
