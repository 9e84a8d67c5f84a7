"""Routes for playbooks and executions: registered, started, listed, shown, cancelled, rebuilt as of a position."""
