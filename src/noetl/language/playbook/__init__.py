"""Playbooks: YAML goes in, a checked `Playbook` with its warnings comes out, or every problem with line and column.

`parse` reads the text, puts older spellings into today's, matches the tree against the grammar, applies the rules that
tables cannot express, and builds the values of `model`. `checks` then follows names and arcs. Nothing is run.
"""
