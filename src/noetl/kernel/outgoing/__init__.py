"""Requests that a process sends on behalf of a user: a host goes in, the addresses it may connect to come out.

`guard` decides. `guarded_request` sends one HTTP request to an address that passed, `blocking_sessions` does the
same for client libraries that block. A connection never goes to an address that was not checked, redirects included.
"""
