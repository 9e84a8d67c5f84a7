"""The alert rules in deploy/: each file is read, and each alert asks for series that some role exports and says what it means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.roles import all_role_series

DIRECTORY = Path(__file__).parents[3] / "deploy" / "prometheus"
FILES = sorted(DIRECTORY.glob("*.rules.yaml"))

_NO_NAMES = re.compile(
    r"""
    "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*`      # texts
    | \{[^}]*\} | \[[^\]]*\]                             # labels and ranges
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)  # labels of groups
    | \b(?:and|or|unless|bool|offset|inf|nan)\b
    | \b[0-9][0-9a-zA-Z.]*                               # numbers and durations
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()(?![a-zA-Z0-9_:])")


def asked_for(expression: str) -> set[str]:
    """Return the names of the series that an expression asks for."""
    return set(_NAME.findall(_NO_NAMES.sub(" ", expression)))


def exported() -> set[str]:
    """Return the names of all samples that a server or another role gives from its start."""
    families = [*Metrics("0").registry.collect(), *all_role_series()]
    return {sample.name for family in families for sample in family.samples}


def alerts(file: Path) -> list[dict[str, Any]]:
    """Return the rules of a file, read as YAML that gives no key twice."""
    found = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    return [rule for group in found["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a_seconds > 30", {"a_seconds"}),
        ("histogram_quantile(0.99, rate(a_bucket[5m])) > 1e3", {"a_bucket"}),
        ('sum by (job, le) (rate(a{b="c, d_total"}[5m] offset 1h)) / on (job) b_total unless bool c:d', {"a", "b_total", "c:d"}),
    ],
)  # fmt: skip
def test_the_names_of_series_are_found_in_expressions(expression: str, names: set[str]) -> None:
    assert asked_for(expression) == names


def test_there_are_rules() -> None:
    assert "NoetlMaterializationBehind" in {rule["alert"] for file in FILES for rule in alerts(file)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_alert_asks_for_what_is_exported_and_says_what_it_means(file: Path) -> None:
    """INV-165: a series that comes with its first event only would hide that event from an alert."""
    known, names = exported(), []
    for rule in alerts(file):
        names.append(rule["alert"])
        asked = asked_for(rule["expr"])
        assert asked, f"{rule['alert']} asks for nothing"
        assert asked <= known, f"{rule['alert']} asks for {sorted(asked - known)}, which nobody exports"
        assert rule["annotations"]["summary"].strip(), f"{rule['alert']} does not say what it means"
        assert rule["labels"]["severity"] in {"page", "warn"}
    assert len(names) == len(set(names))
