"""Publishes what an attempt wrote: a report goes in; pointers, cursors, schemas and the task's end move in one append.

Versions are those of the grant. If another attempt was faster, nothing is published.
"""
