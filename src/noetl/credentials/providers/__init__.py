"""Where secrets may come from: one module per kind of provider."""
