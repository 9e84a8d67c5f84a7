"""DAGs: YAML goes in, a checked DAG of jobs comes out, or every problem with line and column.

`parse` expands shorthands, matches the tree against the grammar, applies `rules`, and builds the values of `model`.
SQL and Python files are read for tables, columns and imports; none is ever run.
"""
