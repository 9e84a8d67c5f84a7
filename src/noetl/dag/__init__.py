"""DAG files: YAML to a checked DAG of jobs."""
