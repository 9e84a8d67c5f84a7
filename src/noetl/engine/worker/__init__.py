"""Where work is done: commands and frames go in, tools run their tasks, reports come out.

`worker` takes commands, `slot` works off the frames of a loop, `sequence` runs the tasks of a step.
A worker never decides what happens next and never writes to the ledger; it reports through
`noetl.engine.dispatch.port`.
"""
