"""The keychain of a playbook: its entries go in, fields with secrets as `Secret`s come out.

`fetcher` fetches an entry by its kind, `token_requests` asks for tokens, `rows` keeps fetched fields sealed until they
expire. One process at a time fetches an entry.
"""
