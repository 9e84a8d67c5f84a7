"""Driver processes: work goes in over a socket, one result for each work comes out.

The worker's side is `pool` and `process`. `main` runs in the driver, with `runs` for tasks, `requests` for everything
else, and `programs` for functions of ours that talk with their worker. Both sides speak `protocol`.
A driver has no database. It may be killed at any time, and its work is then done again.
"""
