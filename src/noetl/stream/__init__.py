"""Delivery of events to many readers: the port, its adapters and how an event travels in a message."""
