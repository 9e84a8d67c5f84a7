"""Playbooks by path, in immutable versions."""
