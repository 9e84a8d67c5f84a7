"""Runs to the end and tells what came of it, with the exit code: for people, or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import click

from noetl.cli.run.display import Display
from noetl.runtime.commands.run import RunResult
from noetl.runtime.service import run_interruptibly

SHOWN_LINES = 40
"""Lines of a result that are shown; --json prints all of it."""


def finish(display: Display, work: Coroutine[Any, Any, RunResult], *, as_json: bool) -> int:
    """Run to the end, tell what came of it and return the exit code."""
    with _plain_warnings():
        try:
            result = run_interruptibly(work)
        except KeyboardInterrupt:
            if display.execution_id is not None:
                click.echo(f"execution {display.execution_id} was cancelled", err=True)
            raise
    if as_json:
        click.echo(json.dumps(_facts(result, display), indent=2, ensure_ascii=False, default=str))
    else:
        _tell(result, display)
    return 0 if result.status == "COMPLETED" else 1


def _facts(result: RunResult, display: Display) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(result)
    # An id is beyond what JSON readers hold exactly as a number.
    own = {"execution_id": str(result.execution_id), "warnings": display.warnings}
    return {**facts, **own, "rows": display.done, "rows_failed": display.failed}


def _tell(result: RunResult, display: Display) -> None:
    click.echo(f"{result.status} {result.path} version {result.version} in {result.seconds:.3f} s")
    if result.error:
        click.echo(f"error: {result.error}")
    click.echo(f"workload: {bounded(result.workload)}")
    if result.result is not None:
        click.echo(f"result: {bounded(result.result)}")
    if result.frames:
        failed = f", {display.failed} of them failed" if display.failed else ""
        click.echo(f"rows: {display.done + display.failed} in {result.frames} frames{failed}")
    for note in result.notes:
        click.echo(f"note: {note}")
    own = result.execution_id
    if result.swallowed:
        were = "error was" if result.swallowed == 1 else "errors were"
        click.echo(f"{result.swallowed} {were} let pass: `noetl why {own}` tells where")
    more = f"noetl why {own}" if result.status != "COMPLETED" else f"noetl events {own}"
    click.echo(f"execution {own}: look on with `noetl executions show {own}` or `{more}`")


def bounded(value: Any) -> str:
    """Return a value as JSON for a person, cut where it gets long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 100:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    lines = [line if len(line) <= 500 else f"{line[:500]}…" for line in text.splitlines()]
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:SHOWN_LINES], f"… {len(lines) - SHOWN_LINES} more lines; --json prints all"])


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show what the parts warn of as one line each, without traces."""
    handler, root = _Handler(logging.WARNING), logging.getLogger("noetl")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {record.getMessage()}", err=True)
