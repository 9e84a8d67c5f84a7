"""Processes: settings, the embedded server, migrations, wiring of adapters."""
