"""Streaming views at work: deployed views go in, rows that Spark keeps up to date come out, barrier by barrier.

`versions` deploys and swaps, `supervisor` runs what nobody runs, `run` answers Spark's program, `sinks/` write rows
together with their barrier, `verification` compares a view with the ledger. The language of views is in
`noetl.language.view`, Spark's half in `noetl.spark.views`.
"""
