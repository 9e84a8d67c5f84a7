"""Questions about published datasets in SQL: checked, pinned, answered within bounds, and recorded."""
