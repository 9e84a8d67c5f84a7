"""What is removed and what is kept in each organization: rows and files go in, a plan with its reasons comes out.

    policy, pins ─┐
    rows ─────────┼─► facts ──► decisions (pure) ──► plan ──► run: the event first, then rows and files
    lake listing ─┘

A run appends to the stream of pins and to the stream of the DAG at the versions the plan was made from. A pin, a deploy
or a switch that came meanwhile makes it plan again. Readers ask the tombstones that the events leave.
"""
