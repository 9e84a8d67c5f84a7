"""Plans a deployment: a DAG's files and what is deployed go in, a plan with its reasons comes out.

All problems and warnings are reported together. Nothing is changed.
"""
