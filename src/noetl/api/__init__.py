"""The REST surface: routes, problems, tokens."""
