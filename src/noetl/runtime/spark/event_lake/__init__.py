"""The event lake of one organization: synced, followed, verified, compacted and rebuilt by programs in a Spark driver.

`lake` is the entry. `programs` runs a program, and `answers` gives it what it asks for: events and leases. Spark itself
reads no ledger here.
"""
