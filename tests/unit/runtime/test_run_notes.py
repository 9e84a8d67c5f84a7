"""What a run left undone is told at its end."""

from __future__ import annotations

from noetl.engine.plan.state import Result, State
from noetl.language.playbook.parse import parse
from noetl.runtime.commands.run_notes import notes_of

TEXT = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo/it}
workflow:
  - {step: each, loop: {in: [], iterator: row}, tool: {kind: shell, cmds: x}, next: {arcs: [{step: more}]}}
  - {step: more, tool: {kind: shell, cmds: x}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: noop}}
"""
NO_ROWS = {"total": 0, "completed": 0, "failed": 0, "frames": 0}


def notes(results: dict[str, Result], *entered: str) -> tuple[str, ...]:
    state = State(execution_id=1, runs=dict.fromkeys(entered, 1), results=results)
    return notes_of(parse(TEXT).playbook, state)


def test_a_run_that_left_something_undone_says_so() -> None:
    """INV-171."""
    worked = Result(status="ok", data={"stdout": ""})
    empty = Result(status="ok", data=NO_ROWS)
    assert (
        notes({"each": Result(status="ok", data={**NO_ROWS, "total": 2}), "more": worked}, "each", "more", "end") == ()
    )
    assert notes({"each": worked, "more": worked}, "more", "end") == (), "a re-run has what came before"
    assert notes({"each": empty}, "each") == (
        "1 of 3 steps were entered; never more, end", "the loop of each had no rows",
    )  # fmt: skip
    assert notes({"each": empty}, "each", "more", "end") == ("not admitted: more", "the loop of each had no rows")
