"""Tables in the memory that the processes of one node share: one copy puts a table in, no copy takes it out.

`port` is the promise. `shm` keeps it with files in `/dev/shm`, `memfd` with sealed anonymous memory passed on by the
`broker` of the node. `region` is the layout that any language can read, `segments` are the regions one process owns,
and `node` is the budget and the directory that all processes share.

A cache only: whatever is lost or wrong here costs a slower read, never a wrong one.
"""
