"""`noetl datasets` for data that change: what is wrong, missed or wanted again, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: rows, path: shop/rows}
workload: {partition: null, world: WORLD}
workflow:
  - step: make
    tool:
      kind: python
      input: {partition: "{{ workload.partition }}", world: "{{ workload.world }}"}
      code: |
        from pathlib import Path
        amount = int(Path(world).read_text())
        days = [partition.partition("=")[2]] if partition else ["2026-01-01", "2026-01-02"]
        result = [{"day": day, "amount": amount} for day in days]
"""
DAG = """\
name: shop
jobs:
  - {name: orders, playbook: rows.yaml, partition_by: [day], max_attempts: 1}
  - {name: copies, playbook: rows.yaml, partition_by: [day], inputs: [orders], max_attempts: 1}
  - {name: third, playbook: rows.yaml, partition_by: [day], inputs: [copies], max_attempts: 1}
publish: [orders, copies, third]
"""


@pytest.fixture
def world(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAG that serves, whose rows depend on a file."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    file = tmp_path / "world"
    file.write_text("1")
    (tmp_path / "rows.yaml").write_text(PLAYBOOK.replace("WORLD", str(file)))
    (tmp_path / "dag.yaml").write_text(DAG)
    code, output, errors = noetl("dag", "run", "dag.yaml")
    assert code == 0, output + errors
    return file


def _amounts(noetl: Noetl, name: str) -> dict[str, int]:
    return {row["day"]: row["amount"] for row in json.loads(noetl("datasets", "head", name, "--json")[1])}


def _json(noetl: Noetl, *arguments: str) -> Any:
    code, output, errors = noetl("datasets", *arguments, "--json")
    assert code == 0, output + errors
    return json.loads(output)


def test_a_partition_that_is_wrong_is_built_again_with_all_that_was_made_of_it(noetl: Noetl, world: Path) -> None:
    """INV-69."""
    world.write_text("2")
    wrong = _json(
        noetl,
        "invalidate",
        "copies",
        "--partition",
        "day=2026-01-01",
        "--reason",
        "correction",
        "--note",
        "n",
        "--wait",
    )
    assert (wrong["status"], wrong["reason"], wrong["error"]) == ("closed", "correction", None)
    assert _amounts(noetl, "orders") == {"2026-01-01": 1, "2026-01-02": 1}
    assert _amounts(noetl, "third") == _amounts(noetl, "copies") == {"2026-01-01": 2, "2026-01-02": 1}
    code, output, _ = noetl("datasets", "invalidate", "orders", "--where", "amount:1..2")
    assert (code, output.startswith("amount:1..2 of orders is wrong: 2 tasks of shop.copies follow (run ")) == (0, True)
    (still,) = _json(noetl, "invalidations", "--open")
    assert (still["row_filter"], still["processed_by"]) == ({"amount": {"gte": 1, "lt": 2}}, {})
    assert "amount:1..2" in noetl("datasets", "invalidations")[1]
    # The tasks wait; whoever works next does them.
    assert noetl("datasets", "reconcile", "--wait")[0] == 0
    world.write_text("3")
    again = _json(noetl, "invalidate", "third", "--partition", "day=2026-01-02", "--wait")
    assert again["status"] == "closed"
    assert _amounts(noetl, "third")["2026-01-02"] == 3


def test_a_range_is_previewed_built_again_and_looked_after(noetl: Noetl, world: Path) -> None:
    """INV-70."""
    span = ("--from", "2026-01-02", "--to", "2026-01-06")
    code, output, _ = noetl("datasets", "backfill", "orders", *span, "--dry-run")
    assert code == 0
    assert output.splitlines() == [
        "orders: 4 partitions to build again by the source shop.orders",
        "  from day=2026-01-02 to day=2026-01-05",
        "  built before: 1",
        "  followed by: shop.copies, shop.third",
        output.splitlines()[-1],
    ]
    assert output.splitlines()[-1].startswith("  at most 32 at a time, about ")
    code, _, errors = noetl("datasets", "backfill", "orders", *span)
    assert (code, "give --yes to go on" in errors) == (2, True)
    assert _json(noetl, "backfills", "list") == []
    world.write_text("5")
    done = _json(noetl, "backfill", "orders", *span, "--max-in-flight", "2", "--yes", "--wait")
    assert (done["status"], done["made"], done["progress"]["built"], done["plan"]["total"]) == ("completed", 4, 4, 4)
    assert (
        _amounts(noetl, "third")
        == _amounts(noetl, "orders")
        == {"2026-01-01": 1} | {f"2026-01-0{day}": 5 for day in range(2, 6)}
    )
    derived = _json(noetl, "backfill", "copies", "--from", "2026-01-04", "--to", "2027-01-01", "--yes", "--wait")
    assert (derived["total"], derived["status"]) == (2, "completed")

    code, output, errors = noetl(
        "datasets", "backfill", "orders", "--from", "2027-01-01", "--to", "2027-01-04", "--yes"
    )
    assert (code, "see how far it is" in errors) == (0, True)
    one = output.split("backfill ")[1].split()[0]
    assert _json(noetl, "backfills", "pause", one)["status"] == "paused"
    code, _, errors = noetl("datasets", "backfills", "pause", one)
    assert (code, "is paused and cannot be paused" in errors) == (1, True)
    assert _json(noetl, "backfills", "resume", one, "--wait")["status"] == "completed"
    queued = _json(noetl, "backfill", "orders", "--from", "2027-02-01", "--to", "2027-02-04", "--yes")
    cancelled = _json(noetl, "backfills", "cancel", queued["backfill_id"], "--reason", "the wrong month")
    assert (cancelled["status"], cancelled["error"]) == ("cancelled", "the wrong month")
    assert "cancelled" in noetl("datasets", "backfills", "list")[1]
    assert "0 of 3 partitions given out" in noetl("datasets", "backfills", "show", queued["backfill_id"])[1]


def test_what_is_not_there_is_answered_in_one_line(noetl: Noetl, world: Path) -> None:
    for arguments, code, message in (
        (["invalidate", "nope", "--partition", "a=1"], 1, "there is no dataset nope"),
        (["invalidate", "orders"], 2, "a partition or a range of rows"),
        (["invalidate", "orders", "--where", "nope:1..2"], 2, "there is no column 'nope'"),
        (["backfill", "orders", "--from", "2", "--to", "1", "--yes"], 2, "there is nothing from 2 to 1"),
        (["backfill", "orders", "--from", "1", "--to", "2", "--partition", "x", "--yes"], 2, "names no value"),
        (["backfills", "show", "7"], 1, "there is no backfill 7"),
        (["reconcile", "nope"], 1, "no version of a DAG nope"),
        (["state", "shop.nope"], 1, "has no job nope"),
        (["state", "shop"], 2, "names no job"),
    ):
        found, output, errors = noetl("datasets", *arguments)
        assert (found, output) == (code, ""), (arguments, output, errors)
        assert errors.startswith("error: ")
        assert message in errors, (arguments, errors)
    assert "keeps nothing" in noetl("datasets", "state", "shop.orders")[1]
    for name in ("list", "show", "pause", "resume", "cancel"):
        assert f"noetl datasets backfills {name}" in noetl("datasets", "backfills", name, "--help")[1]
