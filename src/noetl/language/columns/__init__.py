"""Column lineage: a SQL query or a Spark plan goes in, and for each output column its input columns come out.

What cannot be followed makes columns opaque, with a reason; no dependency is silently left out. Nothing is run and
nothing is looked up.
"""
