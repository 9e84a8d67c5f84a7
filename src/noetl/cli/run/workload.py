"""What a run is given: options of the command line go in, the payload laid over the playbook's workload comes out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from noetl.errors import InputError, PlaybookInvalid

set_option = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a workload value, read as YAML; a.b=1 reaches into mappings.",
)
payload_option = click.option(
    "--payload", metavar="JSON|@FILE", help="Workload values as a JSON object, or @ and a file of JSON or YAML."
)


def given_payload(payload: str | None, sets: Sequence[str]) -> dict[str, Any]:
    """Return what --payload and --set say together; a later word counts over an earlier one."""
    from noetl.engine.plan.workload import merged

    given = {} if payload is None else _payload(payload)
    for one in sets:
        given = merged(given, _set(one))
    return given


def unknown_fields(workload: Mapping[str, Any], given: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Say which given values the playbook's workload has no place for: mostly these are misspelt."""
    from noetl.language.grammar.problems import nearest

    for name, value in given.items():
        path = f"{above}{name}"
        own = workload.get(name)
        if name not in workload:
            near = nearest(name, workload)
            meant = f"; did you mean {above}{near}?" if near else ""
            yield f"the playbook's workload has no {path}, so only templates that name it will see it{meant}"
        elif isinstance(own, Mapping) and own and isinstance(value, Mapping):
            yield from unknown_fields(own, value, f"{path}.")


def _payload(text: str) -> dict[str, Any]:
    import msgspec

    where = "--payload"
    if text.startswith("@"):
        where, text = text[1:], _read(text[1:])
        if Path(where).suffix in (".yaml", ".yml"):
            return _mapping(_yaml(where, text), where)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        raise InputError(
            f"{where} is no JSON: {problem}", hint="""such as --payload '{"count": 3}', or --payload @values.json"""
        ) from None
    return _mapping(value, where)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a mapping of workload values")
    return value


def _yaml(file: str, text: str) -> Any:
    from noetl.language.grammar.problems import Problems, refusal
    from noetl.language.grammar.yaml_reader import read

    problems = Problems(file)
    tree = read(text, problems)
    if tree is None or problems.errors:
        raise refusal(problems.in_order())
    return tree.plain()


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise InputError(f"{file} is not UTF-8 text: byte {problem.start} cannot be decoded") from None


def _set(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    path = name.split(".")
    if not equals or not all(part.strip() for part in path):
        # What stands after the sign may be a secret, so it is not repeated.
        raise InputError(f"--set {name!r} is no NAME=VALUE", hint="such as --set count=3 or --set source.url=https://…")
    nested: Any = value_of(value)
    for part in reversed(path):
        nested = {part: nested}
    found: dict[str, Any] = nested
    return found


def value_of(text: str) -> Any:
    """Read a value as YAML: a mapping, a list or a text in quotes, else a single word or number; what is none is text.

    Anything else that YAML would see in a text, such as a colon, a # or a *, is part of the text.
    """
    import msgspec

    from noetl.language.grammar.yaml_reader import CannotCarryError, resolve

    if text.startswith(("{", "[", '"', "'")):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            pass
        try:
            return _yaml("--set", text)
        except PlaybookInvalid:
            return text
    try:
        return resolve(text) if text else ""
    except CannotCarryError:
        return text
