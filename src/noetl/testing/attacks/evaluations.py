"""Texts that a server reads besides templates, small to write and long to read: each name stands for one reading of one text.

Run as a program with a name it does that reading alone, and says how it ended: `refused` or `accepted`. Whoever starts it can
bound its time and its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from noetl.errors import InputError, TemplateFailed
from noetl.language.alert.document import parse_alerts
from noetl.language.dag.ddl import NotAType
from noetl.language.dag.ddl import spelled as spelled_by_author
from noetl.language.dag.parse import parse as parse_dag
from noetl.language.dag.times import schedule_problem
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.language.playbook.model import Accumulate
from noetl.language.playbook.selection import accumulate, at_path
from noetl.language.view.document import parse_view
from noetl.model.dataset import Field
from noetl.pipelines.explain.conditions import read_conditions
from noetl.pipelines.plan.partition_ranges import Selection, grid
from noetl.pipelines.plan.schema_rules import spelled as spelled_by_worker
from noetl.pipelines.tables.column_types import schema_of
from noetl.pipelines.tables.json_rows import json_rows, table_of
from noetl.services.query.gate.gate import read as read_query
from noetl.services.schedule.cron import next_after
from noetl.services.schedule.planning import plan
from noetl.services.schedule.spec import Spec

_MANY: Final = 2_500
_HEAD: Final = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a/b}\n"
_ALERTS: Final = "apiVersion: noetl.io/v2\nkind: Alerts\nname: a\n"
_DAG: Final = "apiVersion: noetl.io/v2\nkind: DAG\nname: a\n"


def _workflow(lines: list[str]) -> CheckedPlaybook:
    return CheckedPlaybook(_HEAD + "workflow:\n" + "\n".join(lines))


def _column(kind: str) -> None:
    parse_dag(f"{_DAG}jobs:\n  - {{name: x, operator: webhook, schema: {{columns: {{a: '{kind}'}}}}}}\n")


def _code(text: str) -> None:
    _workflow([f"  - step: start\n    tool: {{kind: python, code: '{text}'}}"])


def _program(source: bytes) -> None:
    files = {"a.py": source}
    parse_dag(f"{_DAG}jobs:\n  - {{name: x, operator: udf, file: a.py}}\n", files=files)


def _alerts(channel: str) -> None:
    channels = [f"  channel{n}: {{kind: slack, url: 'https://a/'}}" for n in range(_MANY)]
    rules = [f"  - {{name: r{n}, on: run_failed, channels: [{channel}{n}]}}" for n in range(_MANY)]
    parse_alerts("\n".join([_ALERTS, "channels:", *channels, "rules:", *rules]))


def _alert_for(time: str) -> None:
    channels = "channels: {c: {kind: slack, url: 'https://a/'}}\n"
    rule = f"{{name: r, on: run_late, later_than: {time}, severity: warning, channels: [c]}}"
    parse_alerts(f"{_ALERTS}{channels}rules:\n  - {rule}\n").parsed()


def _sent(body: bytes, kind: str | None = None, rows: str = "") -> None:
    declared = None if kind is None else schema_of([Field("a", kind, nullable=True)])
    table_of(json_rows(body, rows), declared, others="keep" if declared is None else "ignore")


def _moments(expression: str) -> None:
    wrong = schedule_problem(expression)
    if wrong is not None:
        raise InputError(wrong)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(1_000):
        moment = next_after(expression, "UTC", moment)


def _missed(expression: str) -> None:
    spec = Spec(expression=expression, catch_up_seconds=1)
    plan(spec, datetime(2020, 2, 2, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC))


def _range(start: str, end: str, step: str) -> None:
    grid(Selection(column="d", start=start, end=end, step=step))


def _gathered(path: str) -> None:
    accumulate(None, {"a": [1]}, Accumulate(strategy="concat", merge_path=path))


def _query(text: str) -> None:
    read_query(text, "duckdb")


READINGS: Final[dict[str, Callable[[], object]]] = {
    "arcs to steps that there are not": lambda: _workflow(
        [f"  - step: step{n}\n    tool: {{kind: noop}}\n    next: {{arcs: [{{step: stap{n}}}]}}" for n in range(_MANY)]
    ),
    "steps of one name": lambda: _workflow(["  - step: a\n    tool: {kind: noop}"] * _MANY),
    "kinds that there are not": lambda: _workflow(
        [f"  - step: s{n}\n    tool: {{kind: pyton{n}}}" for n in range(_MANY)]
    ),
    "fields that there are not": lambda: CheckedPlaybook(_HEAD + "\n".join(f"worklod{n}: 1" for n in range(4 * _MANY))),
    "a template in code that is not closed": lambda: _code("{{a" + " " * 300_000),
    "openings of templates in code": lambda: _code("{{a " * 50_000),
    "a time of a million days": lambda: _workflow(
        ["  - step: s\n    tool: {kind: noop, spec: {timeout: " + "9" * 400 + "d}}"]
    ),
    "an index of many digits": lambda: at_path([1], "$[" + "9" * 5_000 + "]"),
    "an index of many digits to gather at": lambda: _gathered("$[" + "9" * 5_000 + "]"),
    "a path of many steps": lambda: at_path({"a": 1}, "$" + ".a" * 450_000),
    "a path of brackets": lambda: at_path({"a": 1}, "$" + "[" * 450_000),
    "a type of blanks": lambda: _column("a" + " " * 300_000),
    "a type of one word over and over": lambda: _column("a" + " not" * 50_000),
    "a type with a long name": lambda: spelled_by_worker("struct<" + "a" * 50_000 + ":int>"),
    "a type that is a long name": lambda: spelled_by_worker("a" * 50_000 + "("),
    "types in types": lambda: spelled_by_author("array<" * 50_000),
    "a type of quotes": lambda: spelled_by_author("`" * 200_001),
    "names that are published": lambda: parse_dag(
        f"{_DAG}publish: [" + ", ".join(f"n{n}" for n in range(4 * _MANY)) + "]\njobs: []\n"
    ),
    "inputs that there are not": lambda: parse_dag(
        f"{_DAG}jobs:\n" + "\n".join(f"  - {{name: job{n}, inputs: [jab{n}], sql: SELECT 1}}" for n in range(_MANY))
    ),
    "a program of many lines": lambda: _program(b"import a\n" * 1_000_000),
    "a program of parentheses": lambda: _program(b"(" * 100_000),
    "a program of signs": lambda: _program(b"x = " + b"-" * 100_000 + b"1"),
    "rules with many channels": lambda: _alerts("channel"),
    "rules with channels that there are not": lambda: _alerts("chanel"),
    "an alert after a time without end": lambda: _alert_for("9" * 4_000 + "d"),
    "an alert after ten thousand years": lambda: _alert_for("3660000d"),
    "a view that is nested": lambda: parse_view("kind: View\nname: a\nkeys: a\nsql: SELECT " + "(" * 10_000 + "1\n"),
    "a rate beyond all dates": lambda: _moments("rate(999999 weeks)"),
    "the rarest rate": lambda: _moments("rate(1830 days)"),
    "the rarest cron expression": lambda: _moments("0 0 29 2 *"),
    "a cron expression of lists": lambda: _moments(",".join(["0-59"] * 30) + " * * * *"),
    "a schedule that stood for years": lambda: _missed("* * * 1-18 2-11 *"),
    "hours of ten thousand years": lambda: _range("0001-01-01T00", "9999-12-31T00", "1h"),
    "the longest step": lambda: _range("0001-01-01", "9999-12-31", "999999999d"),
    "rows in rows": lambda: _sent(b'{"a":' * 900 + b"1" + b"}" * 900),
    "lists in lists": lambda: _sent(b'{"a":' + b"[" * 900 + b"1" + b"]" * 900 + b"}"),
    "lists in lists, as text": lambda: _sent(b'{"a":' + b"[" * 900 + b"1" + b"]" * 900 + b"}", "string"),
    "rows with columns of their own": lambda: _sent(b"[" + b",".join(b'{"c%d":1}' % n for n in range(60_000)) + b"]"),
    "a number of a hundred million digits": lambda: _sent(b'{"a": 1e99999999}', "bigint"),
    "a number of a billion digits, exactly": lambda: _sent(b'{"a": 1e999999999}', "decimal(38,2)"),
    "a number of a billion digits behind the point": lambda: _sent(b'{"a": 1e-999999999}', "decimal(38,2)"),
    "a path to rows of many steps": lambda: _sent(b'{"a":1}', rows="a." * 100_000),
    "a condition of pairs": lambda: read_conditions("(" * 28 + "a, 1" + ")" * 28, []),
    "a condition of functions": lambda: read_conditions("a = " + "f(x -> " * 40 + "1" + ")" * 40, []),
    "a query of parentheses": lambda: _query("SELECT " + "(" * 60 + "1" + ")" * 60),
    "a query of words": lambda: _query("SELECT " + "NOT " * 20_000 + "1"),
    "a query of paths": lambda: _query("SELECT json_extract(a, '$" + "..a" * 20_000 + "')"),
    "a query of filters in a path": lambda: _query("SELECT json_extract(a, '$" + "[?(" * 5_000 + "')"),
}
"""What a server reads of its users' texts."""

ACCEPTED: Final = frozenset({
    "openings of templates in code", "a template in code that is not closed", "a type with a long name",
    "a type that is a long name", "the rarest rate", "the rarest cron expression", "a cron expression of lists",
    "a schedule that stood for years",
    "the longest step", "rules with many channels",
})  # fmt: skip
"""Those that are allowed: they take long in no way."""


def main() -> None:
    """Do one reading."""
    try:
        READINGS[sys.argv[1]]()
    except (InputError, TemplateFailed, NotAType) as refusal:
        sys.stdout.write(f"refused with {len(str(refusal))} characters\n")
    else:
        sys.stdout.write("accepted\n")


if __name__ == "__main__":
    main()
