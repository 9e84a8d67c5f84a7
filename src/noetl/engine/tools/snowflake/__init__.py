"""The `snowflake` kind: SQL goes in, rows come out, through the official connector.

Each task has a session of its own, in a thread. Secrets never appear in a message.
"""
