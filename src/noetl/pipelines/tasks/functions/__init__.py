"""Functions outside NoETL that run tasks, behind HTTP or in AWS Lambda.

The whole grant goes out; the function reports the end through the API. No result is awaited here.
"""
