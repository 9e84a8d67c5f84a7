"""Commands for DAGs, their sources and their tasks, and for what Spark needs to run them."""
