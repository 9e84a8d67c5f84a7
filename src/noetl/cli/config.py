"""`noetl config`: show the settings in force, check a configuration, print the reference page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noetl.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

_FILE = click.Path(path_type=Path)


@click.group()
def config() -> None:
    """Show and check the settings."""


@config.command()
@click.option("--config", "file", type=_FILE, help="The configuration file, in place of noetl.yaml.")
@click.option("--origin", is_flag=True, help="Say where each value that is not a default came from.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(file: Path | None, origin: bool, as_json: bool) -> None:
    """Print the settings in force, with secrets masked."""
    from noetl.runtime.config import load
    from noetl.runtime.write_path.choice import loss_window

    loaded = load(file)
    origins = {path: str(place) for path, place in loaded.origins.items()}
    durability = loss_window(loaded.settings, loaded.settings.event_store.write_path)
    if as_json:
        shown = {
            "settings": loaded.settings.model_dump(mode="json"),
            "origins": origins,
            "durability": durability,
        }
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    lines = list(_lines(loaded.settings, origins if origin else {}))
    width = max(len(line) for line, place in lines if place) if origin and origins else 0
    for line, place in lines:
        click.echo(f"{line:<{width}}  # {place}" if place else line)
    if durability is not None:
        click.echo(f"# {durability}")


@config.command()
@click.argument("file", type=_FILE, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(file: Path | None, as_json: bool) -> None:
    """List every problem of FILE (or noetl.yaml) and the environment; exit 2 if there is one."""
    from noetl.runtime.config import Problem, load

    problems: list[Problem] = []
    read = "defaults and environment"
    try:
        read = str(load(file).file or read)
    except ConfigError as error:
        found = error.details["problems"]
        assert isinstance(found, list)
        problems = found
    if as_json:
        shown = {"valid": not problems, "problems": [asdict(one) for one in problems]}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    elif problems:
        for one in problems:
            click.echo(str(one), err=True)
        click.echo(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}.", err=True)
    else:
        click.echo(f"No problems in {read}.")
    if problems:
        raise SystemExit(2)


@config.command()
def reference() -> None:
    """Print the reference page of all settings as Markdown."""
    from noetl.runtime.config.reference import render

    click.echo(render(), nl=False)


def _lines(
    section: BaseModel | Mapping[str, Any], origins: Mapping[str, str], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, str | None]]:
    from pydantic import BaseModel

    from noetl.runtime.config.reference import text

    indent = "  " * len(above)
    for key, value in section.items() if isinstance(section, Mapping) else section:
        path = (*above, key)
        if isinstance(value, BaseModel | Mapping) and value:
            yield f"{indent}{key}:", None
            yield from _lines(value, origins, path)
        elif isinstance(value, Mapping):
            yield f"{indent}{key}: {{}}", None
        else:
            yield f"{indent}{key}: {text(value)}", origins.get(".".join(path))
