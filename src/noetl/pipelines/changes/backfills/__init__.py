"""Backfills: a range of partitions goes in, a few tasks at a time come out.

`preview` shows what a backfill would do, `requests` starts and steers it, `queue` turns it into tasks.
"""
