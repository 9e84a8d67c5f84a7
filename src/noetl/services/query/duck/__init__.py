"""The DuckDB engine: checked SQL and its files go in, an Arrow table comes out.

`pool`, `process` and `protocol` are the server's side; `worker`, `instance` and `proof` run in a process of their own.
That process opens only the files it was given and can be killed at any time.
"""
