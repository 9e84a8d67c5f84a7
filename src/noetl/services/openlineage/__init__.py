"""Tells other systems about tasks in the words of OpenLineage: events of the ledger go in, lines of JSON come out.

`fact_reader` finds what is known, `events` puts it into words, `emitter` sends it shard by shard. Each event is sent at
least once and none is skipped. Nothing is written to the ledger.
"""
