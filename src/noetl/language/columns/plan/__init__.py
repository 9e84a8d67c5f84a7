"""The lineage of an analyzed Spark plan: its JSON goes in, where each column comes from comes out.

Operators and code that cannot be followed make their output opaque. No Spark session is needed.
"""
