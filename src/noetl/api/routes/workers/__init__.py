"""The protocol of workers: claims, heartbeats, reports and releases, each fenced by its lease."""
