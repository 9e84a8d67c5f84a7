"""The operators of DAGs that raise and route alerts."""
