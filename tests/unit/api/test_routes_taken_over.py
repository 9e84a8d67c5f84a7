"""The decision about routes of the older API names only routes that this server has."""

from __future__ import annotations

import re
from pathlib import Path

from noetl.api.routes.all_routes import endpoints

DECISION = Path(__file__).parents[3] / "docs" / "decisions" / "0025-routes-that-were-not-taken-over.md"


def test_every_route_that_is_said_to_serve_is_there() -> None:
    rows = [line.split("|") for line in DECISION.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    named = {route for row in rows for route in re.findall(r"`((?:GET|POST|DELETE) /[^`]*)`", row[2])}
    assert len(named) > 40
    assert named <= {f"{one.method} {one.template}" for one in endpoints()}
    for row in rows:
        assert row[2].strip() or row[3].strip(), f"{row[1]} is neither served nor explained"
