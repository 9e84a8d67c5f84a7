"""The `mcp` kind: one request to a server of the Model Context Protocol goes out per task, its result comes back.

`over_http` and `over_stdio` are the transports. A session, and a process started for it, end with the task.
"""
