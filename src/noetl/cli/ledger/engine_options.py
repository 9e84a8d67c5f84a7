"""The options of commands that fold whole histories: which engine does it, and where it reads the events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import click

from noetl.errors import InputError

Engine = Literal["process", "spark"]
Source = Literal["ledger", "lake"]
Command = TypeVar("Command", bound=Callable[..., object])


def engine_options(command: Command) -> Command:
    """Add `--engine` and `--from` to a command."""
    engine = click.option(
        "--engine",
        type=click.Choice(["process", "spark"]),
        default="process",
        show_default=True,
        help="Fold in this process, or all shards of an organization on Spark.",
    )
    source = click.option(
        "--from",
        "source",
        type=click.Choice(["ledger", "lake"]),
        default="ledger",
        show_default=True,
        help="With Spark: read the ledger, or the event lake as far as it has come and the ledger from there on.",
    )
    return engine(source(command))


def refuse_source(source: Source) -> None:
    """Refuse a source that only Spark reads."""
    if source != "ledger":
        raise InputError("the event lake is read by Spark", hint="add --engine spark")
