"""A whole installation under random trouble: in goes a seed, out comes whether anything was lost, doubled or left undone.

Servers, workers, PostgreSQL, NATS, an S3 server and Spark drivers run as processes of their own. They are killed, paused,
cut off, starved of disk and given wrong clocks, while a client outside records facts and starts executions and writes
down only what was acknowledged. Afterwards everything is healed and counted: `python -m noetl.testing.chaos --help`.
"""
