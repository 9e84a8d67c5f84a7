"""One command for each long-running process; each runs until it is stopped, and drains first."""
