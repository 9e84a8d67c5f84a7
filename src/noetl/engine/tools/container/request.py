"""Reads a task's fields as one container to run, whatever runs it."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noetl.engine.tools.port import Call
from noetl.errors import InputError

SCRIPT_PLACE: Final = "/noetl"
"""The directory of a container in which its script lies."""
INPUT: Final = "NOETL_INPUT"
"""The variable that holds a script's input as JSON."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RENAMED: Final = {"service_account_name": "service_account", "provider": "runtime", "timeout": "timeout_seconds"}
_RUNTIMES: Final = ("auto", "kubernetes", "docker", "podman")
_LABEL_REST: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Script:
    """A program that is put into the container: its file name, its text and what runs it."""

    file: str
    text: str = field(repr=False)
    interpreter: str

    def command(self) -> list[str]:
        """Return the command that runs it with its input as the one argument."""
        return ["/bin/sh", "-c", f'exec {self.interpreter} {SCRIPT_PLACE}/{self.file} "${INPUT}"']


@dataclass(frozen=True)
class Request:
    """One container to run. Values of `env` may be secrets and are never shown."""

    name: str
    """The same for every worker that tries the same thing, so that one finds what another started."""
    runtime: str
    image: str
    command: list[str]
    args: list[str]
    env: Mapping[str, str] = field(repr=False)
    env_from_cluster: list[dict[str, Any]]
    """Variables that the cluster itself knows the values of (`valueFrom`)."""
    script: Script | None
    seconds: float | None
    labels: Mapping[str, str]
    options: Mapping[str, Any] = field(repr=False)


def read_request(call: Call, script: Script | None = None, described: Mapping[str, Any] | None = None) -> Request:
    """Return what a call asks for; `described` stands in place of the call's own fields.

    Raises InputError for what cannot be read.
    """
    options = _merged(call.options if described is None else described)
    runtime = str(options.get("runtime") or "auto")
    if runtime not in _RUNTIMES:
        raise InputError(f"runtime: {runtime!r} is none of {', '.join(_RUNTIMES)}")
    image = options.get("image")
    if not isinstance(image, str) or not image.strip():
        raise InputError("a container task needs `image`")
    env, from_cluster = _environment(options.get("env"))
    command, args = _words(options.get("command"), "command"), _words(options.get("args"), "args")
    if script is not None:
        env = {INPUT: json.dumps(dict(call.input), default=str), **env}
        command = command or script.command()
    return Request(
        name=_name(call),
        runtime=runtime,
        image=image,
        command=command,
        args=args,
        env=env,
        env_from_cluster=from_cluster,
        script=script,
        seconds=_seconds(call.timeout, options.get("timeout_seconds")),
        labels=_labels(call),
        options=options,
    )


def _merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields under one spelling, with those of a `runtime` mapping among them."""
    options = {_spelling(name): value for name, value in given.items() if value is not None}
    inner = options.get("runtime")
    if isinstance(inner, Mapping):
        del options["runtime"]
        options = {**{_spelling(name): value for name, value in inner.items() if value is not None}, **options}
    return options


def _spelling(name: str) -> str:
    plain = _HUMP.sub(lambda found: f"_{found[1].lower()}", str(name))
    return _RENAMED.get(plain, plain)


def _words(given: Any, field_name: str) -> list[str]:
    if given is None:
        return []
    if isinstance(given, str):
        try:
            return shlex.split(given)
        except ValueError as problem:
            raise InputError(f"{field_name}: {problem}") from None
    if not isinstance(given, list | tuple) or any(isinstance(each, list | dict) or each is None for each in given):
        raise InputError(f"{field_name} is a list of texts")
    return [_text(each) for each in given]


def _environment(given: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    if given is None:
        return {}, []
    if isinstance(given, Mapping):
        given = [{"name": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list | tuple):
        raise InputError("env is a mapping of names to texts, or a list of {name, value}")
    values: dict[str, str] = {}
    from_cluster: list[dict[str, Any]] = []
    for one in given:
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise InputError("env: each entry needs a `name` of letters, digits and underscores")
        source = one.get("valueFrom", one.get("value_from"))
        if source is not None:
            from_cluster.append({"name": name, "valueFrom": source})
        elif one.get("value") is not None:
            values[name] = _text(one["value"])
    return values, from_cluster


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


def _seconds(limit: float | None, own: Any) -> float | None:
    if own is None:
        return limit
    try:
        seconds = float(own)
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise InputError("timeout_seconds is a number of seconds above 0")
    return seconds if limit is None else min(seconds, limit)


def _name(call: Call) -> str:
    """Return a name for the effect of a call: the execution to read, and a digest of all that makes it this one."""
    tried = f"{call.owner.tenant_id}/{call.owner.organization_id}/{call.key}/{call.scope.get('_attempt', 1)}"
    return f"noetl-{call.execution_id}-{hashlib.sha256(tried.encode()).hexdigest()[:16]}"


def _labels(call: Call) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "noetl",
        "noetl.io/execution": str(call.execution_id),
        "noetl.io/tenant": label_text(call.owner.tenant_id),
        "noetl.io/organization": label_text(call.owner.organization_id),
    }


def label_text(text: str) -> str:
    """Return a text as the value of a label: at most 63 letters, digits, dots, dashes and underscores."""
    return _LABEL_REST.sub("-", text)[:63].strip("-_.")
