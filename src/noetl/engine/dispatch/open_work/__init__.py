"""Open work as dispatch sees it: rows of commands, stages, frames and executions, read and kept alive, never written.

    port.py       what dispatch asks, and what comes out
    postgres.py   from the tables of open work; leases are left to `noetl.leases`
    memory.py     from the rows of a `MemoryLedger`, for tests and simulation

Rows change by transitions of the ledger alone; the one thing that moves here is how long a lease lasts.
"""
