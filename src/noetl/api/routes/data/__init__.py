"""Routes for DAGs, their tasks and sources, and for datasets: deployed, read, queried, traced and changed."""
