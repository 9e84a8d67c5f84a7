"""Immutable bytes under their digest: the payload store, its encodings, its caches and its garbage collection.

Bytes go in, a reference comes out; a reference goes in, the same bytes come out, or an error. `port` is the promise.
`objects` stores durably, `shared_memory`, `disk` and `lru` are caches in front of it, and `tiers` chains them.

A store never reads events and never returns bytes whose digest does not match.
"""
