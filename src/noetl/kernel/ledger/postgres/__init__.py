"""The ledger in PostgreSQL: drafts go in, committed events come out, page by page.

`ledger` is the adapter behind `noetl.kernel.ledger.port`. `database` gives transactions bound to one organization,
`committer` groups concurrent appends, `notifier` wakes readers after the commit, `coverage` waits for the
materializer, and `write_path` says whether events are appended directly or through the stream.

Nothing here interprets an event.
"""
