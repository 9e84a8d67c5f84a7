"""DAGs by name: a bundle of files goes in, immutable versions come out, one of which serves readers.

`registry` makes every change in one append to the DAG's stream; the other modules only read or only build values.
"""
