"""Changed partitions go in, tasks of the jobs that read them come out.

Each task is created at most once, so a change may be routed any number of times.
"""
