"""The kinds of tasks: a rendered call goes in, an outcome comes out.

`port` is the promise, `registry` finds the kinds and loads each at its first call. A kind is a module, or a folder
whose entry is `tool`. Tools know nothing of steps, leases or events, and no message of theirs shows a secret.
"""
