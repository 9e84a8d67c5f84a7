"""Playbooks by path, in immutable numbered versions.

Source text goes in; a version and its plan come out. `playbooks` declares the store as a protocol; `postgres` and
`memory` implement it. `plan_cache` compiles each version once per process, and
`evaluation` bounds the time that templates take.
A version never changes, and nothing is executed here.
"""
