"""What work does when a part of the platform is away: payload store, database, server, the worker's own disk.

Such errors are never the work's. They are waited out, with growing pauses, under the lease of the command that needs the
part, and told in the command's stream while they last. `waits` decides what such an error is; `payloads` and `dispatch` are
the ports of a worker that wait by it.
"""
