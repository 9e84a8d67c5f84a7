"""Where the rows of a view go: a batch and its barrier go in, and stand together or not at all.

`port` is the promise. A batch that stands is never written again.
"""
