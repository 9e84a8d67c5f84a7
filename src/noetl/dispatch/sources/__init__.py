"""Sources that are kept running and sources that are sent to."""
