"""What every adapter of a port must do, as tests. A subclass brings the adapter as a fixture."""
