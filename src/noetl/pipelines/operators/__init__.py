"""Operators that need no Spark, one file each: a task's inputs go in, tables come out. None commits anything."""
