"""Spark as the data engine: sessions, operators, and how datasets are read and written. Nothing else imports pyspark."""
