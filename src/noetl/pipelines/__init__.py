"""Pipelines: DAGs of dataset jobs go in, committed versions of datasets come out.

catalog, plan            what is deployed, and what to do; plan is pure
tasks, changes, sources  tasks, what causes them, and what they commit
worker, operators        runs tasks in this process or on Spark
tables, datasets         Arrow tables, and datasets as people see them
explain, damage          where rows come from; damaged files, found and rebuilt

It never imports services or the API.
"""
