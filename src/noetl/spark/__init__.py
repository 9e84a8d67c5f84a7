"""Spark as the data engine: sessions, operators, and how datasets are read and written. Nothing else imports pyspark.

session, drivers     starts Spark; one driver process, seen from both ends
operators, queries   runs tasks of jobs; rewrites their SQL
lake                 files of datasets: written, read and checked
source               the ledger as a data source
frames, event_lake   loops on executors; all events as a dataset
views, bulk_replay   streaming views; replay by shards

Spark commits nothing: the worker does.
"""
