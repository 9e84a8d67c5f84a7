"""One lease protocol for every kind of work: claim, renew, fence, give back, reap.

    kinds.py        each kind of leased row, declared once: table, key, lease columns, when it is free, what makes it held
      ├─ statements.py   the SQL of each operation, built once from the declaration
      │    ├─ operations.py   renew, hold, give back and claim on an open transaction, for any kind
      │    ├─ open_work.py    what dispatch asks about commands and frames
      │    └─ shards.py       a fair share of the shards for each process of a role
      └─ fences.py       what a transition relies on: a lease that is held, has expired, or is free
    heartbeats.py   keeps leases of a process alive, and stops work before its lease can end

A grant has an attempt, counted from 1, and a random token. Whoever holds it proves itself by key, attempt and token with
every later write (`noetl.model.lease.Proof`); the database's clock decides how long it lasts.

Kinds whose changes are events (commands, frames, tasks, slots, deliveries, views) are claimed and ended by transitions of
the ledger: this package finds the candidates, renews, and names the fences; the ledger decides. Outbox rows and shards have
no events: they are claimed and given back here.

No other module compares lease times or tokens in SQL; `tools/check_repository.py` looks for it. In the schema,
`noetl.broken_fences` and `noetl.task_fence` check the fences of transitions by the same rules. The lease of a change
of the write path is a single row behind functions of the schema (`noetl.begin_change` and its fellows) and is not here.

`noetl.model.lease` states the rules without a database; `tests/properties/test_lease_machine.py` runs both side by side.
"""
