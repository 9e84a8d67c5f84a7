"""Streaming views: declared in YAML, run by Spark, kept up to date barrier by barrier, and provable against the ledger."""
