"""Datasets for people and for streams: a name and a mark go in; rows, files, differences or lineage come out.

`dataset_reader` fixes what stood there; most other modules read on from its answer. Only `streamed` commits: batches of
streaming programs. Nothing here changes a file that was committed.
"""
