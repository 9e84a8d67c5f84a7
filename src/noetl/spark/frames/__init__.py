"""Loops of playbooks on Spark: a stage goes in, references to the results of its frames come out.

`pool` runs in the worker, `executor_task` and `slot` in executors, `result_query` answers queries over the results.
Executors hold leases as any worker does; a result reaches the ledger only under its lease.
"""
