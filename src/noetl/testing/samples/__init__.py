"""Builders of valid events, executions, pipelines and tables: a test names what matters, the rest is filled in."""
