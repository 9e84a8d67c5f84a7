"""Alerts: conditions over data and the ledger go in; alerts, and messages about them to channels, come out.

`evaluation` looks conditions up, `judgement` raises and resolves alerts, `sender` delivers messages under a lease.
The two operators do the same inside a DAG. Rules and channels as users write them are in `noetl.language.alert`.
A message is sent at least once; nothing is decided by whether it arrived.
"""
