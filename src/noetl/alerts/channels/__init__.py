"""Where messages about alerts go, one kind of channel per module."""
