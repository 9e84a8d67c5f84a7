"""Prometheus metrics: plain calls and rows of queries go in, `/metrics` comes out.

No series is labelled with an execution, and nothing here decides anything.
"""
