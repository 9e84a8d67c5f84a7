"""Tasks of dataset jobs: their life cycle under leases, the outbox of what follows from it, and routing."""
