"""Where projected rows are kept: rows and the moved checkpoint go in together, rows come out as one view.

`port` is the promise; `memory` keeps it for tests, `postgres` for real. `rows` is the stored form of a row, and
`by_type` sends readers of a type to the store that has it. A store never folds and never changes the ledger.
"""
