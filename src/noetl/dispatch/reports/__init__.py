"""What workers report is checked against what they were granted, before anything of it is recorded."""
