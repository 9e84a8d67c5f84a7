"""Older spellings: a tree as older NoETL took it goes in, the same playbook in today's language comes out.

Each spelling is reported with what to write instead: a warning, or an error in strict mode. What is not listed stays as
it is, for the grammar to refuse. Every part keeps the place where it was written.
"""
