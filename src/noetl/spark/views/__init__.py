"""Streaming views in the driver: events or changes of a dataset go in, rows and barriers for the worker come out.

`program` keeps a view up to date, `recomputation` computes it in one go; both use `query`. The worker writes rows and
barriers; nothing is recorded here.
"""
