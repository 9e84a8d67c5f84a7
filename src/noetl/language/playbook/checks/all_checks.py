"""Runs every check: a parsed playbook goes in, problems come out in the file's order. Nothing is run or fetched."""

from __future__ import annotations

from collections.abc import Collection

from noetl.errors import PlaybookInvalid
from noetl.language.grammar.problems import Problem, Problems
from noetl.language.playbook.checks.code import check_code
from noetl.language.playbook.checks.endless_runs import check_recursion, check_rings
from noetl.language.playbook.checks.flow import check_children, check_graph, check_loops
from noetl.language.playbook.checks.names import check_names
from noetl.language.playbook.checks.results import check_results
from noetl.language.playbook.checks.workload import check_workload
from noetl.language.playbook.parse import Parsed, parse


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
