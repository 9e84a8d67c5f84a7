"""The kinds of tasks: the name of a kind goes in, its fields and their shapes come out.

`registry` lists every kind. The other modules declare the fields of each. The worker's tools decide how a kind runs;
nothing here does.
"""
