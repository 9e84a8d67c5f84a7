"""Recorded facts that dispatch looks up by what they say, where reading a stream from its start would take too long.

port.py       what dispatch asks
postgres.py   by the indexes of the ledger
memory.py     by looking through a `MemoryLedger`, for tests and simulation
"""
