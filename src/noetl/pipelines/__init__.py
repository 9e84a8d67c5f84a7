"""Pipelines at work: the worker of dataset jobs' tasks, the operators that need no Spark, and deploys to their end."""
