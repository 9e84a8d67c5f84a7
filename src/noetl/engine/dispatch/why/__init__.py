"""Explains an execution, a step or a frame: events of the ledger go in, sentences with their evidence come out.

`story` lays the events out by step, command and frame; the other modules put them into words.
It reads no projection and writes nothing.
"""
