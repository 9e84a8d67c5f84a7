"""How work is handed out and taken back: one lease protocol for commands and frames, fenced by attempt and token."""
