"""The `transfer` kind: rows go from one system to another in chunks.

`tool` connects a source and a target; one module per system gives both ends. Memory holds one chunk, never the whole.
"""
