"""Tells workers that a task waits, through PostgreSQL or through Amazon SQS.

A wake-up carries no work. A lost one delays a task and never loses it.
"""
