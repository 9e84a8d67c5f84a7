"""Every setting with its type, default and meaning, one module per group.

The declarations are the source: reading, checking, `noetl config` and the reference page follow from them.
Nothing here reads a file or the environment; `runtime.config` does.
"""
