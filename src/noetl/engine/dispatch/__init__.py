"""Hands work out and takes it back: one lease protocol for commands and frames, fenced by attempt and token.

Triggers and reports go in: a start, a claim, a heartbeat, the end of a command or frame. `executions` decides with
`noetl.engine.plan` and appends events at an expected version. On a conflict it folds the new events and decides again,
so two completions that arrive together are decided one after the other. `local` serves workers on the ledger itself,
`remote` over the API; both implement `port`. `reaper` takes back leases that expired.
Dispatch never runs a user's code, and it writes nothing but events.
"""
