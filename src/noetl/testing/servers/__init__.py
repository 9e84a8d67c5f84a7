"""Real servers for tests, started on loopback and stopped with the test process."""
