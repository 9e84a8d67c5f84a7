"""Datasets by name: a name, and perhaps a mark, goes in; what a reader sees comes out, pinned. Nothing is written."""
