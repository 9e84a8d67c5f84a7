"""What happens next: an execution's state and a trigger go in, the facts that follow come out.

Pure: no clock, no random numbers, no driver, no event loop. The same events always give the same decision, so replay
and simulation run the same code. `decide` is the entry, `state` folds events, each other module answers one question.
Nothing is recorded here: `noetl.engine.dispatch` does that.
"""
