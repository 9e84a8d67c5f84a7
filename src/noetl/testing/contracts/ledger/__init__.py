"""The contract of the ledger as tests: appends, idempotency keys, links between calls, and reads."""
