"""The engine: playbooks in, commands and recorded results out.

catalog     playbooks by path, in immutable versions
plan        what happens next; pure
dispatch    decides, records, hands out work under leases and takes it back
worker      runs commands and frames, and reports what they came to
tools       one module or folder per kind of task
platform    waits while the database, the server or the payload store is away
confinement runs users' code in confined processes

It never imports Spark, pipelines or services.
"""
