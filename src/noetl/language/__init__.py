"""The languages that users write: YAML goes in, checked values come out.

grammar/    the toolkit: YAML with places, shapes, matching, problems
templates/  expressions in `{{ }}`, sandboxed and bounded
playbook/   dag/   view/   alert/   one folder for each kind of document
columns/    which columns come from which, in SQL and in Spark plans

Pure: nothing here reads a clock, a file or a network, and nothing runs a task.
"""
