"""What runs in a Spark driver, connected to the ledger and the lake of one organization.

Executors are told how to reach the ledger as plain values; nothing of it is recorded.
"""
