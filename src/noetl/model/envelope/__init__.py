"""The event envelope: what every event carries, whatever its type."""
