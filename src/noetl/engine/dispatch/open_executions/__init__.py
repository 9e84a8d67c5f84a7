"""Executions that have not ended, and their families: who started whom, who outlived whom, who stands still.

port.py       what dispatch asks, and what comes out
postgres.py   from `noetl.execution_head` and the events that requested executions
memory.py     from the rows of a `MemoryLedger`, for tests and simulation
"""
