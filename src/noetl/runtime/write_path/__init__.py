"""The write path of one process: which way events take to the ledger, what moves them, and what was lost on the way.

Settings and a runtime go in; a relay, a materializer or neither runs. Never changes the path of a database silently.
"""
