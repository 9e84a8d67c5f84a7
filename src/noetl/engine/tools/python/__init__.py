"""The `python` kind: code and its input go in, plain JSON values come out.

`tool`, `pool`, `process` and `packages` run in the worker. `child`, `code`, `names` and `results` are loaded by path in
the child interpreter, which may lack NoETL: they import the standard library alone.
"""
