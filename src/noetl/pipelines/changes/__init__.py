"""Changes of data that exist: invalidations, backfills and reconciliation go in, tasks come out.

`invalidations` rebuilds what was wrong, `backfills/` fills ranges, `reconciliation` finds what was missed.
No data is written here: tasks do that.
"""
