"""Looks at what a playbook refers to: a parsed playbook goes in, problems come out. Nothing is run or fetched."""

from __future__ import annotations

from collections.abc import Collection

from noetl.errors import PlaybookInvalid
from noetl.playbook.check_children import check_children
from noetl.playbook.check_code import check_code
from noetl.playbook.check_graph import check_graph
from noetl.playbook.check_loops import check_loops
from noetl.playbook.check_names import check_names
from noetl.playbook.check_recursion import check_recursion
from noetl.playbook.check_results import check_results
from noetl.playbook.check_rings import check_rings
from noetl.playbook.check_workload import check_workload
from noetl.playbook.parse import Parsed, parse
from noetl.playbook.problems import Problem, Problems


def check(parsed: Parsed) -> list[Problem]:
    """Return what does not add up in a playbook, in the order in which it stands there."""
    problems = Problems(parsed.file)
    check_graph(parsed, problems)
    check_loops(parsed, problems)
    check_children(parsed, problems)
    check_recursion(parsed, problems)
    check_rings(parsed, problems)
    check_names(parsed, problems)
    check_results(parsed, problems)
    check_code(parsed, problems)
    check_workload(parsed, problems)
    return problems.in_order()


def problems_of(
    text: str, *, file: str | None = None, kinds: Collection[str] | None = None, strict: bool = False
) -> list[Problem]:
    """Return everything that is to be said about a playbook's text: what reading finds, then what checking finds."""
    try:
        parsed = parse(text, file=file, kinds=kinds, strict=strict)
    except PlaybookInvalid as error:
        found: list[Problem] = error.details["problems"]  # type: ignore[assignment]
        return found
    return sorted([*parsed.warnings, *check(parsed)], key=lambda one: (one.line, one.column))
