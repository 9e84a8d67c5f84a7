"""The invariants of a simulated world, judged at every write and once more at the end."""
