"""Loops at work: frames go out to workers, their results come back.

`frames` leases frames and records their ends, `results` gathers what they came to, `progress` shows rows in flight.
Progress is a hint and is never recorded.
"""
