"""How workers hear that a task waits: through PostgreSQL, or through a queue."""
