"""The toolkit that every document is read with: YAML text and a grammar go in, a tree and its problems come out.

A grammar is data, built from `shapes`. The matcher compares a tree with it and reports every problem with its line and
column. No module here knows what a DAG, a view or an alert is, and no problem repeats a value, which may be a secret.
"""
