"""Sources of pipelines that run continuously or receive webhooks.

Turns and requests go in, runs of source jobs come out. `supervisor` keeps one live turn per always-on job; `signatures`
is pure and checks who sent a request.
"""
