"""Secrets at rest and in use: credentials and tokens go in, and come out only for those who may have them.

`store` keeps credentials in sealed rows, `keychain/` fetches and caches what playbooks ask for, `providers/` reads
other secret stores, `redactor` removes secrets from whatever is stored or shown. A `Secret` shows its text only when
asked to by name. Plain secrets are never written to a row, an event or a log.
"""
