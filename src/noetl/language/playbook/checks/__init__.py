"""Checks of what a playbook refers to: a parsed playbook goes in, problems come out.

`all_checks` runs every check in order. `broken_references` checks a document that does not match the grammar.
A check never changes the playbook, renders a template or fetches anything.
"""
