"""Which columns come from which, read from SQL and from Spark's plans. Pure: nothing is run, nothing is looked up."""
