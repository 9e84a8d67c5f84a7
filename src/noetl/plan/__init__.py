"""What happens next: pure functions from an execution's state and an event to the events that follow."""
