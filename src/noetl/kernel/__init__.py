"""What every other layer stands on: the ledger of events and all that is derived from it or carries it.

In go drafts of events and bytes of payloads. Out come ordered events, leases, messages and projections. `ledger` is
the only truth; `projections` can be deleted and rebuilt, and `replay` proves that they are right. `payloads` holds
large data, `stream` delivers events, `leases` decides who works on what, `outgoing` guards requests to other hosts.

The kernel never decides what runs next, knows no operator or tool, and never imports Spark.
"""
