"""Pure values: ids, the event envelope and its catalogue, canonical JSON, locators, marks.

Values go in and values come out. Nothing here does I/O, reads a clock or keeps state.
"""
