"""The `mcp` kind: one request to a server of the Model Context Protocol per task."""
