"""Immutable bytes under their digest: the payload store, its adapters, encodings and garbage collection."""
