"""The embedded PostgreSQL server, and the schema of any database.

The location of a home goes in; a running server with a password, on a Unix socket and loopback TCP, comes out.
Migrations bring a schema to a revision. Never installs system users, never listens on another address.
"""
