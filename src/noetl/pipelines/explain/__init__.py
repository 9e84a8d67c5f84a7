"""Where rows come from: conditions on a dataset go in; its rows with commit, task, code, inputs and cause come out.

`conditions` reads what is asked, `row_search` finds the rows, `origins` follows them back. Nothing is written.
"""
