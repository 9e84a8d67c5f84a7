"""Writes the reference pages and schemas that are made from code; `make check` compares them with what is committed."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from prometheus_client import Metric
from schema_page import render_schema
from schema_source import schema_files

from noetl import __version__, errors
from noetl.api.openapi import document
from noetl.api.routes.all_routes import endpoints
from noetl.cli.main import COMMANDS
from noetl.errors import NoetlError
from noetl.faults import POINTS
from noetl.language.grammar.fit import described
from noetl.language.grammar.shapes import Either, Field, ListOf, MapOf, Record, Shape, TaskByKind
from noetl.language.playbook.checks.result_shapes import NATS_RESULTS, RESULTS, STARTED, STORED, ResultShape
from noetl.language.playbook.grammar.document import PLAYBOOK
from noetl.language.playbook.grammar.task import NAME, STEP_NAME, TASK_FIELDS, WORD
from noetl.language.playbook.kinds.registry import KINDS, NOT_RUNNABLE, ONLY_READ, task_record
from noetl.model.registry import registry_files, render_events
from noetl.runtime.config.reference import render as render_configuration
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.roles import all_role_series

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = ROOT / "schemas"


def generated_files() -> dict[Path, str]:
    """Return every generated file with the text it should have."""
    stored = {str(path.relative_to(SCHEMAS)): path.read_text() for path in SCHEMAS.rglob("*.json")}
    described_api = document(endpoints(), __version__)
    pages = {
        REFERENCE / "configuration.md": render_configuration(),
        REFERENCE / "events.md": render_events(),
        REFERENCE / "errors.md": render_errors(),
        REFERENCE / "fault-points.md": render_fault_points(),
        REFERENCE / "cli.md": render_commands(),
        REFERENCE / "playbook.md": render_playbook(),
        REFERENCE / "api.md": render_api(described_api),
        REFERENCE / "openapi.json": json.dumps(described_api, indent=2, ensure_ascii=False) + "\n",
        REFERENCE / "metrics.md": render_metrics(),
        REFERENCE / "schema.md": render_schema(),
    }
    return pages | schema_files() | {SCHEMAS / path: text for path, text in registry_files(stored).items()}


def render_errors() -> str:
    """List every error with its code and what a caller should do about it."""
    rows = [
        f"| `{kind.code}` | {kind.__name__} | {kind.disposition} | {(kind.__doc__ or '').strip()} |"
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, NoetlError)
    ]
    head = (
        "# Errors\n\nMade from `noetl/errors.py`. *Terminal* errors are reported, *transient* ones are tried again, and\n"
        "*superseded* ones say that the work is already done or somebody else's.\n\n"
        "| code | class | disposition | meaning |\n|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def render_fault_points() -> str:
    """List every fault point with what is true there."""
    rows = [f"| `{name}` | {true} |" for name, true in POINTS.items()]
    head = (
        "# Fault points\n\nMade from `noetl/faults.py`. A test arms one with `NOETL_FAULT=<point>=kill|pause|raise`.\n\n"
        "| point | what is true there |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def render_commands() -> str:
    """Give the help of every command."""
    parts = ["# Commands\n\nMade from the commands' own help.\n"]
    for name, (place, _) in sorted(COMMANDS.items()):
        module, _, attribute = place.partition(":")
        for path, command in _commands(name, getattr(importlib.import_module(module), attribute)):
            context = click.Context(command, info_name=f"noetl {path}", max_content_width=100, terminal_width=100)
            text = re.sub(r"[ \t]+$", "", command.get_help(context), flags=re.MULTILINE)
            parts.append(f"## noetl {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, below in sorted(command.commands.items()):
            yield from _commands(f"{path} {name}", below)


def render_playbook() -> str:
    """List every field of a playbook, as the grammar's tables have it."""
    parts = [
        "# Playbook fields\n\nMade from the grammar. What the constructs mean is told in [Playbooks](../playbooks.md); "
        "`noetl schema playbook`\nprints the same grammar as a JSON Schema for editors. *Needed* fields must be given; "
        "a field that is not listed is an error\nunless the section says otherwise. "
        f"A *name* has {NAME.described}.\nA *step's name* may have slashes too.\nA *word* is {WORD.described}.\n"
    ]
    parts += [_section(record) for record in _records(PLAYBOOK)]
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    parts.append(f"## Tasks\n\nThe kinds are {kinds}. Every task has these fields, and those of its kind besides.\n")
    parts.append(_table(TASK_FIELDS))
    seen = {record.title for record in _records(PLAYBOOK)}
    shared = {record.title: record for kind in KINDS for record in _records(task_record(kind))}
    parts += [_section(record) for title, record in shared.items() if title not in seen and not title.endswith(" task")]
    for name, kind in KINDS.items():
        parts.append(f"### {name}\n\n{kind.doc}\n")
        if kind.fields:
            parts.append(_table(kind.fields))
        for group in kind.alternatives:
            if len(group.into) > 1:
                names = ", ".join(f"`{name}`" for name in group.into)
                parts.append(f"{'Exactly' if group.required else 'At most'} one of {names}.\n")
        parts += [f"{told}\n" for told in _results(name)]
    missing = "\n".join(f"- `{kind}`: {instead}." for kind, instead in sorted(NOT_RUNNABLE.items()))
    parts.append(f"## Kinds this build does not have\n\nA playbook that uses one is refused.\n\n{missing}\n")
    read = ", ".join(f"`{kind}`" for kind in ONLY_READ)
    parts.append(f"{read}. A playbook that uses one is read with a warning; a run fails when it comes to the task.\n")
    return "\n".join(parts)


def _results(kind: str) -> list[str]:
    """Tell what a task of a kind comes to, as far as that is known beforehand."""
    shapes = {"nats": NATS_RESULTS, "artifact": {"action: put": STORED}, "playbook": {"wait: false": STARTED}}
    if kind in shapes:
        return [f"With `{when}` it comes to {_fields(shape)}." for when, shape in shapes[kind].items()]
    if kind not in RESULTS:
        return []
    return [f"It comes to {_fields(RESULTS[kind])}."]


def _fields(shape: ResultShape) -> str:
    return ", ".join(f"`{name}`" for name in shape.names()) or "nothing"


def _records(shape: Shape) -> list[Record]:
    """List a record and those below it, each once, in the order they are met."""
    found: dict[str, Record] = {}

    def visit(one: Shape) -> None:
        if isinstance(one, Record) and one.title not in found:
            if not _is_told_in_place(one):
                found[one.title] = one
            for field in one.fields.values():
                visit(field.shape)
        elif isinstance(one, Either):
            for option in one.shapes:
                visit(option)
        elif isinstance(one, ListOf):
            visit(one.item)
        elif isinstance(one, MapOf):
            visit(one.value)

    visit(shape)
    return list(found.values())


def _is_told_in_place(record: Record) -> bool:
    return len(record.fields) == 1


def _section(record: Record) -> str:
    others = {"refused": "", "kept": "Other keys are kept.", "ignored": "Other keys have no effect, with a warning."}
    said = " ".join(filter(None, (record.doc, "" if "other keys" in record.doc else others[record.extra])))
    old = "".join(f"- `{key}` is refused: {hint}.\n" for key, hint in record.removed.items())
    return (
        f"## {record.title}\n\n" + (f"{said}\n\n" if said else "") + _table(record.fields) + (f"\n{old}" if old else "")
    )


def _table(fields: Any) -> str:
    rows = [
        f"| `{name}` | {_value(field)}{', needed' if field.required else ''} | {_cell(field.doc)} |"
        for name, field in fields.items()
    ]
    return "| field | value | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _value(field: Field) -> str:
    return _cell(_words(field.shape))


def _words(shape: Shape) -> str:
    if shape in (NAME, STEP_NAME, WORD):
        return {NAME: "a name", STEP_NAME: "a step's name"}.get(shape, "a word")
    if isinstance(shape, Record) and _is_told_in_place(shape):
        ((name, field),) = shape.fields.items()
        return f"`{name}:` {_words(field.shape)}"
    if isinstance(shape, Record):
        return f"[{shape.title}](#{shape.title.replace(' ', '-')})"
    if isinstance(shape, TaskByKind):
        return "[task](#tasks)"
    if isinstance(shape, ListOf):
        inner = _words(shape.item)
        return "a list" if inner == "anything" else f"a list of: {inner}"
    if isinstance(shape, Either):
        return " or ".join(_words(one) for one in shape.shapes)
    return described(shape)


def render_api(api: dict[str, Any]) -> str:
    """List every route with who may call it."""
    parts = [
        "# REST API\n\nMade from the routes. [openapi.json](openapi.json) has the bodies and answers; a server gives the "
        "same under\n`/api/openapi.json`. A token is sent as `Authorization: Bearer noetl_…`. Ids are text. Errors are "
        "problem documents\n(RFC 9457) with a `code` of [Errors](errors.md).\n\n"
        "A request with an `Idempotency-Key` is done once or refused. *Keyed* routes remember the key: the same request "
        "again\ngets the first answer, another one under the same key 422. Routes that do a thing only once in any case "
        "take the header\nand need it not. The others, marked *no key*, answer 400 and do nothing.\n"
    ]
    nouns: dict[str, list[str]] = {}
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            roles = ", ".join(operation.get("x-noetl-roles", ["anyone, without a token"]))
            names = {parameter["name"] for parameter in operation["parameters"]}
            keyed = " Keyed." if "Idempotency-Key" in names else " No key." * ("x-noetl-no-key" in operation)
            route = f"`{method.upper()} {path}`"
            nouns.setdefault(operation["tags"][0], []).append(f"| {route} | {operation['summary']}{keyed} | {roles} |")
    for noun, rows in nouns.items():
        parts.append(f"## {noun}\n\n| route | what it does | roles |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def render_metrics() -> str:
    """List every metric of a server, and those that only roles without an API have."""
    metrics = Metrics(__version__)
    metrics.http_request("GET", "/health", 200, 0.0)  # its labels show with the first request
    rows = _series(metrics.registry.collect())
    known = {family.name for family in metrics.registry.collect()}
    others = _series(family for family in all_role_series() if family.name not in known)
    columns = "| series | type | labels | meaning |\n|---|---|---|---|\n"
    head = (
        "# Metrics\n\nMade from `noetl/runtime/telemetry.py` and `noetl/runtime/role_metrics.py`. A server gives them under "
        "`/metrics` in\nPrometheus' text format.\n\n"
    )
    more = (
        "\n## Roles without an API\n\nThese are given by a relay, a projector, a materializer or a worker, with those of the "
        "above that are theirs, at\n[a port of its own](../operations.md#metrics).\n\n"
    )
    return head + columns + "\n".join(rows) + "\n" + more + columns + "\n".join(others) + "\n"


def _series(families: Iterable[Metric]) -> list[str]:
    rows = []
    for family in families:
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le", "version"})
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append(f"| `{name}` | {family.type} | {', '.join(labels) or '-'} | {family.documentation} |")
    return rows


def main() -> None:
    """Write what changed."""
    for path, text in generated_files().items():
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
