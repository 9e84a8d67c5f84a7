"""What pipelines decide, without doing it: files, manifests and versions go in, plans and names come out.

Pure: no clock, no database, no random numbers. Equal input gives equal plans and equal ids, so work that is repeated
after a crash is recognized. `deploy/` plans deployments.
"""
