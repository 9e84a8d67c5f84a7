"""Commands that show executions: listed, shown, drawn, explained, and rebuilt as of any position."""
