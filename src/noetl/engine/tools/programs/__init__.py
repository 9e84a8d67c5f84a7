"""The `shell` and `script` kinds, and the processes that tools start.

Commands or the address of a program go in; output and exit code come out. `process` bounds what is kept and ends the
whole process group with the task. A program sees only the environment it is given.
"""
