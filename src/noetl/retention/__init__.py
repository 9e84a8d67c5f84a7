"""What is let go and what is kept, organization by organization: rows and files go in, a plan with its reasons comes out.

    policy, pins ─┐
    rows ─────────┼─► facts ──► planning (pure) ──► plan ──► running: the event first, then rows and files
    lake listing ─┘

Whoever removes appends to the stream of pins and to the stream of the DAG at the versions the plan was made from: a pin,
a deploy or a switch that came meanwhile makes it plan again. Readers ask the tombstones the events leave.
"""
