"""`last` stands for the newest wherever a command takes an id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from tests.integration.cli.shop import write_shop

from noetl.cli.main import cli
from noetl.errors import InputError, NotFound
from noetl.runtime.commands.selection import chosen

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

_IDS = {"execution", "task", "tasks", "backfill", "delivery", "alert", "token_id", "pin_id", "rearmed", "generation"}
_MORE = {
    ("dag activate", "version"), ("dag ready", "version"), ("dag rollback", "version"), ("dag status", "version"),
    ("why", "what"), ("retention pin", "target"), ("replay", "as_of_event"), ("datasets diff", "before"),
    ("datasets diff", "after"),
}  # fmt: skip
"""Parameters that take an id under another name, or something else besides."""

_EXECUTIONS = (
    ("events", "last"),
    ("executions", "show", "last"),
    ("executions", "events", "last"),
    ("payloads", "check", "last"),
    ("replay", "last", "--as-of-event", "last"),
    ("verify", "last"),
    ("why", "last"),
    ("why", "last", "last"),
    ("retention", "pin", "last"),
    ("retention", "unpin", "last"),
)
_PIPELINES = (
    ("tasks", "list", "--execution", "last"),
    ("tasks", "show", "last"),
    ("tasks", "logs", "last"),
    ("dag", "status", "shop", "--version", "last"),
    ("dag", "activate", "shop", "last"),
    ("datasets", "show", "shop_orders", "--generation", "last"),
)
_NOTHING = (
    ("alerts", "show", "last"),
    ("alerts", "deliveries", "retry", "last"),
    ("credentials", "token", "revoke", "last"),
    ("datasets", "backfills", "show", "last"),
    ("datasets", "backfills", "pause", "last"),
    ("datasets", "backfills", "resume", "last"),
    ("datasets", "backfills", "cancel", "last"),
    ("executions", "cancel", "last"),
    ("tasks", "cancel", "last"),
    ("tasks", "retry", "last"),
    ("tasks", "outbox", "--rearm", "last"),
    ("dag", "ready", "shop", "last"),
    ("dag", "rollback", "shop", "--to", "last"),
    ("datasets", "diff", "shop_orders", "--from", "last", "--to", "last"),
)
"""What has nothing to do in this test: the newest is there and has ended, or there is none."""


_ELSEWHERE = ("executions plot last", "executions rerun last", "proof execution last")
"""Tried by other tests, for they take long."""
_ALIKE = ("datasets head", "datasets path", "datasets export", "datasets verify", "explain")
"""Read the generation as `datasets show` does."""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Give every command with what is written to call it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


def test_every_parameter_that_takes_an_id_is_tried_here() -> None:
    taking = {
        (path, parameter.name)
        for path, command in commands(cli)
        for parameter in command.params
        if parameter.name in _IDS or (path, parameter.name) in _MORE
    }
    tried = [*_ELSEWHERE, *(" ".join(one) for one in (*_EXECUTIONS, *_PIPELINES, *_NOTHING))]
    tried += [f"{path} last" for path in _ALIKE]
    assert not [path for path, _ in taking if not any(one.startswith(f"{path} ") and "last" in one for one in tried)]
    assert {path for path, name in taking if (path, name) in _MORE} == {path for path, _ in _MORE}
    unnamed = {
        (path, parameter.name)
        for path, command in commands(cli)
        for parameter in command.params
        if parameter.metavar in ("ID", "EXECUTION", "TASK") or str(parameter.name).endswith("_id")
    }
    assert unnamed <= taking


def test_last_is_the_newest_of_everything(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    write_shop(tmp_path)
    assert noetl("run", "hello.yaml", "--quiet")[0] == 0
    for command in _EXECUTIONS:
        assert noetl(*command)[0] == 0, command
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    for command in _PIPELINES:
        code, _, errors = noetl(*command)
        assert code == 0, (command, errors)
    for command in _NOTHING:
        code, _, errors = noetl(*command)
        assert code in (0, 1, 2), command
        assert not any(said in errors for said in ("'last'", "no execution", "not an id", "Invalid value")), errors
    assert json.loads(noetl("executions", "list", "--json")[1])


def test_one_of_several_is_chosen_by_the_beginning_of_its_id() -> None:
    ids = ["b2", "ab", "aa"]

    def choose(text: str) -> str:
        return chosen(ids, text, str, "pin", "look")

    assert [choose("last"), choose("AB "), choose("b")] == ["b2", "ab", "b2"]
    with pytest.raises(InputError, match="a begins the id of more than one pin"):
        choose("a")
    for text in ("", " ", "c"):
        with pytest.raises(NotFound, match="no pin begins with"):
            choose(text)
    with pytest.raises(NotFound, match="there is no pin yet"):
        chosen([], "last", str, "pin", "look")
