"""Deterministic simulation: a seed goes in; servers, workers, reapers, projectors, schedulers and outboxes run in one thread on
the adapters in memory, under a virtual clock and under faults; out comes nothing, or the story of a broken invariant.

The same seed gives the same story, byte for byte, in every process. `python -m noetl.testing.simulation --help` runs seeds;
docs/simulation.md says what is simulated and what is not.
"""
