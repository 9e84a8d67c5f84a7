"""`noetl retention` on datasets, as a user types it: a policy, a plan with its reasons, a run, pins, and the past after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

AT_ONCE = ("as_of_days=0", "generation_days=0", "keep_generations=0", "grace_hours=0")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything of NoETL's own below a folder of the test's own."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    return tmp_path


def parsed(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def served(noetl: Noetl, home: Path, workload: str) -> None:
    """Let a version of the shop serve readers."""
    write_shop(home, workload)
    assert noetl("dag", "deploy", "dag.yaml", "--activate")[0] == 0


def mark(noetl: Noetl) -> str:
    return str(parsed(noetl("datasets", "show", "shop_orders", "--json"))["mark"])


def test_data_are_kept_until_a_policy_says_otherwise_and_pins_hold_them(noetl: Noetl, home: Path) -> None:
    """INV-81, INV-82."""
    served(noetl, home, "{days: 1}")
    first = mark(noetl)
    for days in (2, 3, 1):
        served(noetl, home, f"{{days: {days}, extra: {days}}}")
    code, out, _ = noetl("retention", "plan")
    assert (code, "Nothing of this organization would go." in out) == (0, True)

    code, out, _ = noetl("retention", "pin", "shop_orders", "--at", first, "--note", "the first day")
    assert (code, f"keeps dataset shop_orders at {first}" in out) == (0, True)
    pin = out.split()[0]
    policy = parsed(noetl("retention", "policy", *[part for one in AT_ONCE for part in ("--set", one)], "--json"))
    assert (policy["policy"]["as_of_days"], policy["own"]["grace_hours"]) == (0, 0)

    plan = parsed(noetl("retention", "plan", "--only", "generations", "--only", "versions", "--json"))
    told = {(line["kind"], line["subject"], line["action"], line["why"]) for line in plan["organization"]["lines"]}
    assert ("generations", "shop_orders", "remove", "unused for 0 d") in told
    assert ("generations", "shop_orders", "keep", "current") in told
    assert ("generations", "shop_orders", "keep", "rollback target") in told
    assert ("versions", "shop_orders", "keep", f"pinned by {pin[:8]} (the first day)") in told

    code, _, errors = noetl("retention", "run")
    assert (code, "nobody is here to be asked" in errors, "--yes" in errors) == (2, True, True)
    assert noetl("retention", "run", "--dry-run", "--yes")[0] == 0
    done = parsed(noetl("retention", "run", "--yes", "--json"))["organization"]["removed"]
    # The first version of what reads the pinned dataset goes, and both datasets of the second version.
    assert done["generations"]["items"] == 3

    assert len(parsed(noetl("datasets", "head", "shop_orders", "--as-of", first, "--json"))) == 3
    code, _, errors = noetl("datasets", "head", "shop.copies.0", "--as-of", first)
    assert (code, "is retained from 20" in errors, "noetl retention pin" in errors) == (1, True, True)
    shown = parsed(noetl("datasets", "show", "shop_orders", "--json"))
    assert sorted(one["use"] for one in shown["generations"]) == ["current", "earlier", "gone", "gone"]

    assert f"{pin[:8]}  dataset shop_orders at" in noetl("retention", "pins")[1]
    assert noetl("retention", "unpin", pin[:8])[0] == 0
    assert parsed(noetl("retention", "pins", "--json")) == []
    (gone,) = parsed(noetl("retention", "pins", "--all", "--json"))
    assert (gone["state"], gone["note"]) == ("taken away", "the first day")
    assert parsed(noetl("retention", "run", "--yes", "--json"))["organization"]["removed"]["generations"]["items"] == 1
    assert noetl("datasets", "head", "shop_orders", "--as-of", first)[0] == 1
    assert noetl("verify")[0] == 0


def test_mistakes_are_answered_in_one_line(noetl: Noetl, home: Path) -> None:
    served(noetl, home, "{days: 1}")
    for arguments, message in (
        (("policy", "--set", "as_of_dys=3"), "did you mean as_of_days?"),
        (("policy", "--set", "as_of_days"), "is not NAME=VALUE"),
        (("pin", "nothing"), "there is no dataset nothing"),
        (("pin", "shop_orders", "--until", "soon"), "is no time"),
        (("pin", "412345678901234567"), "there is no execution"),
        (("pin", "m1.nonsense"), "is not a mark"),
        (("pin", mark(noetl), "--at", "head"), "--at is for datasets"),
        (("unpin", "1b9d"), "no pin that holds begins with 1b9d"),
    ):
        code, _, errors = noetl("retention", *arguments)
        assert code == (1 if message.startswith(("there is no", "no pin")) else 2), (arguments, errors)
        assert message in errors, errors


def test_an_execution_and_a_mark_are_pinned(noetl: Noetl, home: Path) -> None:
    served(noetl, home, "{days: 1}")
    run = parsed(noetl("dag", "list", "shop", "--json"))[0]["deploy_execution_id"]
    made = parsed(noetl("retention", "pin", str(run), "--until", "2999-01-01T00:00:00Z", "--json"))
    assert (made["kind"], made["execution_id"], made["state"]) == ("execution", str(run), "holds")
    everything = parsed(noetl("retention", "pin", mark(noetl), "--json"))
    assert (everything["kind"], everything["dataset"]) == ("mark", None)
    assert len(noetl("retention", "pins")[1].splitlines()) == 3
