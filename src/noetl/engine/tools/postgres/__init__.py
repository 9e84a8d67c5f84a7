"""The `postgres` kind: SQL and parameters go in, rows as plain JSON values come out.

`tool` runs one call, `batch` the calls of many rows in one transaction, `claim` holds rows until the ledger names them.
`statements` and `params` read the SQL, `target` and `pool` give connections. No message shows a password.
"""
