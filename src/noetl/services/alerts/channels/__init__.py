"""Where messages about alerts go: a message and a declared channel go in; it was taken, or `SendFailed` says why not.

A channel keeps nothing and never tries again by itself.
"""
