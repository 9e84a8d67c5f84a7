"""Questions about published datasets in SQL: checked, pinned, answered within bounds, and recorded.

`gate/` lets only known SQL through, `access` says who may read what, `pins` fixes the files, `duck/` or `on_spark`
answers, `audit` records how it came out. A query never writes and never reads a file that it was not given.
"""
