"""SQL of jobs as trees: a query goes in, parts of it or a rewritten query comes out.

`combined` makes one query for the inputs of many tasks. No query is run here.
"""
