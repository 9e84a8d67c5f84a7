"""Runs the command line as `python -m noetl`."""

from __future__ import annotations

from noetl.cli.main import main

main()
