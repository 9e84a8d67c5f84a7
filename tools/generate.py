"""Writes the reference pages and schemas that are made from code; `make check` compares them with what is committed."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from noetl import errors
from noetl.cli.main import COMMANDS
from noetl.errors import NoetlError
from noetl.faults import POINTS
from noetl.model.registry import registry_files, render_events
from noetl.runtime.config.reference import render as render_configuration

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = ROOT / "schemas"


def generated_files() -> dict[Path, str]:
    """Return every generated file with the text it should have."""
    stored = {str(path.relative_to(SCHEMAS)): path.read_text() for path in SCHEMAS.rglob("*.json")}
    pages = {
        REFERENCE / "configuration.md": render_configuration(),
        REFERENCE / "events.md": render_events(),
        REFERENCE / "errors.md": render_errors(),
        REFERENCE / "fault-points.md": render_fault_points(),
        REFERENCE / "cli.md": render_commands(),
    }
    return pages | {SCHEMAS / path: text for path, text in registry_files(stored).items()}


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


def main() -> None:
    """Write what changed."""
    for path, text in generated_files().items():
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
