"""Reads settings from environment variables: `NOETL_<SECTION>__<FIELD>`, nested deeper by more double underscores.

An empty variable counts as not set; `null` clears a setting that may be null; lists are separated by commas.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from noetl.kernel.ledger.claim_checks import STRICT
from noetl.runtime.config.file import Given
from noetl.runtime.config.problems import Origin, Path, Problem, problem, suggest
from noetl.runtime.config.schema import SHORT, Leaf, Named, Node, children, variable
from noetl.runtime.settings.declaration import Settings

OTHER = {
    "NOETL_CONFIG": "The configuration file, in place of the project's `noetl.yaml`.",
    "NOETL_STATE_DIR": "Directory for what the embedded server cannot keep in the project, in place of `/var/lib/noetl`.",
    STRICT: "Set to anything, every append is checked in full and refused where a claim does not hold, for tests.",
    "NOETL_FAULT": "Fault points to arm, for tests.",
    "NOETL_FAULT_FD": "File descriptor on which a paused fault point reports itself, for tests.",
}
"""Variables that are no settings."""


def read_environment(environ: Mapping[str, str], referred: Collection[str]) -> tuple[Given, list[Problem]]:
    """Read the settings in the environment; `referred` are the variables that the file itself expands."""
    given: Given = {}
    problems: list[Problem] = []
    short = {name: path for path, name in SHORT.items()}
    for name in sorted(environ):
        text = environ[name]
        if not text or not name.startswith("NOETL_") or name in OTHER:
            continue
        if name not in short and "__" not in name:
            if name not in referred:
                problems.extend(_misspelt(name, [*short, *OTHER]))
            continue
        path = short.get(name) or tuple(name.removeprefix("NOETL_").lower().split("__"))
        found = _locate(path, name)
        if isinstance(found, Problem):
            problems.append(found)
        elif path in given and given[path][0] != _value(text, found):
            hint = "remove one of them"
            problems.append(problem(path, f"is set differently by {given[path][1]}", Origin(name), hint))
        else:
            given[path] = (_value(text, found), Origin(name))
    return given, problems


def _locate(path: Path, name: str) -> Leaf | Problem:
    if "" in path:
        return problem(path, "has an empty part", Origin(name), "separate the parts by two underscores")
    node: Node = Settings
    for depth, key in enumerate(path):
        if isinstance(node, Named):
            node = node.section
            continue
        known = {} if isinstance(node, Leaf) else children(node)
        if key not in known:
            there = f": {'.'.join(path[:depth])} has no {key}" if depth else ""
            hint = suggest(key, known) if known else f"use {variable(path[:depth])}"
            return problem(path, f"is not a setting{there}", Origin(name), hint)
        node = known[key]
    if isinstance(node, Leaf):
        return node
    return problem(path, "is a section, not a setting", Origin(name), f"add __<FIELD> to {name}")


def _value(text: str, leaf: Leaf) -> Any:
    if leaf.nullable and text == "null":
        return None
    return [part.strip() for part in text.split(",")] if leaf.many else text


def _misspelt(name: str, known: list[str]) -> list[Problem]:
    # Only names one slip away: a service called noetl makes a cluster inject variables such as NOETL_PORT.
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.94)
    return [problem((), "is not a setting", Origin(name), f"did you mean {close[0]}?")] if close else []
