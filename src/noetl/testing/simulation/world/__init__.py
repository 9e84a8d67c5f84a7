"""A simulated installation: processes, their network and clocks, and the stores they share, all in one thread."""
