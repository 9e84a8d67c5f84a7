"""The `noetl` command, one module per noun."""
