"""The contract of projection stores as tests, with sample rows, events and snapshots."""
