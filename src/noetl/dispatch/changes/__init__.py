"""Data that change: what was wrong is built again, ranges are filled, what was missed is found."""
