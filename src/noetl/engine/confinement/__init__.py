"""Runs users' code confined: a command goes in; it runs where it cannot read our secrets,
outgrow its memory or leave processes behind.

`launcher` and `kernel` run in the process that becomes the command, `policy` and `process` in the worker. Nothing here
contains code that wants to do harm with the rights it is left with: SECURITY.md says what they are.
"""
