"""What all commands share on a terminal: tables, one-line messages, progress bars, and who acts."""
