"""Operators that need no Spark, one file each."""
