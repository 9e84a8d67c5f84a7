"""NoETL: an event-sourced runtime for workflows and data pipelines."""

__version__ = "0.1.0"
