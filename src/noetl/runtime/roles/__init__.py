"""The composition root of each long-running process: settings go in, a role that serves until it is stopped comes out.

One module per role. `run_<role>` blocks until a signal ends the process and returns its exit code; `open_<role>` is the
same as a context, for processes and tests that run several roles at once. A role chooses and connects its parts here,
in the order in which they must be closed. It parses no options and prints nothing: it reports through `tell`.
"""
