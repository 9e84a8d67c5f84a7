"""The `duckdb` and `ducklake` kinds: SQL goes in, rows as plain JSON values come out.

The work runs in threads, on connections that `databases` lends. Credentials live as secrets for one task only.
"""
