"""Views, as users write them: YAML goes in, a `View` with its code comes out, or every problem with line and column.

`select` decides whether a SELECT can be kept up to date row by row. Spark runs views elsewhere; nothing runs here.
"""
