"""Fills the generated parts of the schema's SQL files from the event catalogue and the envelope.

A part stands between `-- begin generated: NAME` and `-- end generated`; its text follows from NAME alone, indented as
the marks are. `make verify` writes the parts, and `make check` fails where a file has another text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from noetl.model.catalogue import rows
from noetl.model.envelope import sql as envelope
from noetl.runtime.postgres.migrations import SCHEMA

WIDTH = 120
_PART = re.compile(r"^( *)-- begin generated: (.+)\n(?:.*\n)*? *-- end generated$", re.MULTILINE)


def schema_files() -> dict[Path, str]:
    """Return every object's file that has generated parts, with the text it should have; migrations stay as they were."""
    objects = (path for path in sorted(SCHEMA.rglob("*.sql")) if "migrations" not in path.parts)
    texts = {path: path.read_text() for path in objects}
    return {path: filled(text) for path, text in texts.items() if "-- begin generated" in text}


def filled(text: str) -> str:
    """Return a file's text with all of its generated parts written anew."""
    return _PART.sub(_part, text)


def _part(found: re.Match[str]) -> str:
    indent, name = found[1], found[2]
    if name not in PARTS:
        raise SystemExit(f"no part of the schema is called {name!r}; tools/schema_source.py has {', '.join(PARTS)}")
    lines = [f"-- begin generated: {name}", *PARTS[name](WIDTH - len(indent)), "-- end generated"]
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def _wrapped(words: Iterable[str], width: int) -> list[str]:
    """Join words by commas into lines of a width."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f", {word}"
        else:
            if lines:
                lines[-1] += ","
            lines.append(word)
    return lines


def _types(asked: Callable[[], Iterable[str]], width: int) -> list[str]:
    names = sorted(asked())
    if not names:
        raise SystemExit(f"the catalogue names no type where {asked} is asked for")
    return _wrapped((f"'{name}'" for name in names), width)


def _functions(width: int) -> list[str]:
    lines = []
    for function in dict.fromkeys(rows.APPLIED_BY.values()):
        lines += [
            "WHEN said IN (",
            *(f"    {line}" for line in _types(partial(rows.types_applied_by, function), width - 4)),
        ]
        lines.append(f") THEN '{function}'")
    return lines


def _once(width: int) -> list[str]:
    conditions = []
    for name, field in rows.once_types().items():
        conditions += [
            f"{'OR ' if conditions else ''}(e.event_type = '{name}' AND EXISTS (SELECT FROM noetl.known_event AS x",
            f"    WHERE x.execution_id = e.execution_id AND x.{field} = e.{field} AND x.tenant_id = p_tenant",
            f"    AND x.organization_id = p_organization AND x.event_type = '{name}'))",
        ]
    return conditions


def _once_indexes(width: int) -> list[str]:
    lines = []
    for name, field in rows.once_types().items():
        lines += [
            f"CREATE UNIQUE INDEX {_once_index(name, field)}",
            f"    ON noetl.event (execution_id, {field}, tenant_id, organization_id) WHERE event_type = '{name}';",
        ]
    return lines


def _once_index(name: str, field: str) -> str:
    return f"uidx_event_{name.replace('.', '_')}_{field}"


def _recorded_once(width: int) -> list[str]:
    lines = []
    for name, field in rows.once_types().items():
        lines += [
            "IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id",
            f"           AND known.{field} = c.{field} AND known.tenant_id = c.tenant_id",
            f"           AND known.organization_id = c.organization_id AND known.event_type = '{name}'",
            f"           WHERE c.event_type = '{name}') THEN",
            f"    RAISE unique_violation USING MESSAGE = '{name} of this {field} is in the ledger',",
            f"        CONSTRAINT = '{_once_index(name, field)}';",
            "END IF;",
        ]
    return lines


def _new_event_values(width: int) -> list[str]:
    values = envelope.insert_values(
        "e",
        position="positions[e.append] + e.ordinal",
        stream_version="versions[e.append] + e.ordinal",
        ingest_time="p_now",
        shard="shards[e.append]",
        tenant_id="p_tenant",
        organization_id="p_organization",
        stream_id="streams[e.append]",
        event_type="noetl.declared(e.event_type)",
    )
    return _wrapped(values, width)


def _streamed_values(width: int) -> list[str]:
    values = envelope.insert_values(
        "r",
        whole=True,
        position="head - written + n",
        stream_version="versions[n]",
        ingest_time="times[n]",
        shard="p_shard",
        event_type="noetl.declared(r.event_type)",
    )
    return _wrapped(values, width)


def _of(function: str, *aggregates: str) -> Callable[[int], list[str]]:
    return partial(_types, lambda: {name for one in aggregates for name in rows.types_applied_by(function, one)})


PARTS: dict[str, Callable[[int], list[str]]] = {
    "functions that change rows": _functions,
    "facts that stand once": _once,
    "indexes of facts that stand once": _once_indexes,
    "waiting facts that stand once": _recorded_once,
    "columns of the ledger": lambda width: [f"{line}," for line in envelope.table_columns()],
    "columns of an event": lambda width: _wrapped(envelope.insert_columns(), width),
    "values of a new event": _new_event_values,
    "values of a streamed event": _streamed_values,
    "attributes of a new event": lambda width: _wrapped(envelope.new_event_attributes(), width),
    "declared types": partial(_types, rows.declared_types),
    "types that end an execution": partial(_types, rows.types_ending_executions),
    "types that close a stage": partial(_types, rows.types_closing_stages),
    "types that overrule holders": partial(_types, rows.types_overruling_holders),
    "types that outlive executions": partial(_types, rows.types_outliving_executions),
    "types that move the lease of a command": partial(_types, partial(rows.types_moving_lease, "command")),
    "types that move the lease of a frame": partial(_types, partial(rows.types_moving_lease, "frame")),
    "types that move the lease of a task": partial(_types, partial(rows.types_moving_lease, "task")),
    "types of alerts": _of("apply_alerts", "alert", "alert_rules"),
    "types of backfills": _of("apply_changes", "backfill"),
    "types of deliveries": _of("apply_alerts", "delivery"),
    "types of invalidations": _of("apply_changes", "invalidation"),
    "types of people": _of("apply_pipelines", "organization"),
    "types of dags": _of("apply_pipelines", "dag"),
    "types of tasks": _of("apply_pipelines", "task"),
}
"""How to write each part, given the width there is."""
