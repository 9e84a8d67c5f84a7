"""Tasks of dataset jobs: wanted tasks go in, committed partitions come out.

`routing/` makes tasks of changed partitions, `claims` and `grants` lease them, `commit/` publishes what an attempt
wrote, `outbox` does what must follow at least once, `reaper` takes back lost leases. `port` is what workers see.
The code of a job never runs here: `noetl.pipelines` and `noetl.spark` do that.
"""
