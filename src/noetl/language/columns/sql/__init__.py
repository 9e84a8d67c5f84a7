"""The lineage of a Spark SQL query: its text and its inputs' columns go in, where each column comes from comes out.

Names are resolved by Spark's rules. The query is never run, and no catalog is asked.
"""
