"""Pure folds: events go in, rows of plain JSON values come out. No clock, no chance, no I/O."""
