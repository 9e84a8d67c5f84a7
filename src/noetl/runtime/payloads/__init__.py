"""Payload tiers of one process, what they hold on this node, and the erasure of a tenant."""
