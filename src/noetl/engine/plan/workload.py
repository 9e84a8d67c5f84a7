"""The workload an execution starts with: a playbook's defaults and what a request gives go in, plain values come out.

What is given is data and is never rendered. A default is rendered when it is first asked for, so the order in which
defaults are written does not matter. One that names itself means what the request gives: where nothing is given, the
name is undefined in it. One that needs itself by way of others is an error. `now()` is the time of the request, which
the execution's id tells, so that a request that is repeated comes to the same.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from noetl.engine.plan.fact import refuse_unrecordable
from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Playbook
from noetl.language.templates.origins import Origin, origins_at
from noetl.language.templates.template import CompiledValue, compile_value, is_template, names_in
from noetl.model.ids import snowflake_time


class Workload:
    """A playbook's own workload, made ready once."""

    def __init__(self, playbook: Playbook) -> None:
        self._path = playbook.path
        self._defaults = playbook.workload
        self._made = _made_of(playbook.workload, "workload", playbook.path, playbook.workload_origins)

    def in_force(
        self, given: Mapping[str, Any], *, execution_id: int | str, catalog_id: str, at: datetime | None = None
    ) -> dict[str, Any]:
        """Return the defaults, as far as nothing is given for them, with what is given laid over them.

        `at` is the time of the request, where the execution's id does not tell it.
        """
        workload = merged(self._defaults, given)
        made = _not_given(self._made, given)
        if not made:
            return workload
        owner = str(execution_id)
        values = _Values(workload, made, _Rendering())
        told = {
            "workload": values,
            "execution_id": owner,
            "catalog_id": catalog_id,
            "job": {"uuid": owner, "execution_id": owner},
        }
        # Keys of the workload come before what only their own templates know. Nothing writes to any of these.
        own = {"path": self._path, "payload": given, "now": lambda: _requested_at(execution_id, at)}
        values.rendering.names = ChainMap(told, values, own)  # type: ignore[arg-type]
        result: dict[str, Any] = _plain(values)
        return result


def _requested_at(execution_id: int | str, at: datetime | None) -> str:
    if at is None and isinstance(execution_id, str):
        return "<now>"
    return (at or snowflake_time(int(execution_id))).isoformat()


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both; where both have a mapping they are merged, else the upper one counts."""
    result = dict(below)
    for key, value in above.items():
        own = result.get(key)
        result[key] = merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return result


@dataclass(frozen=True)
class _Default:
    """A default with templates in it, which is rendered as a whole."""

    name: str
    """Such as `workload.source.url`."""
    value: CompiledValue
    where: str
    line: int
    reads_secrets: bool

    def failed(self, said: str) -> TemplateFailed:
        """Return an error that names its place."""
        return TemplateFailed(f"{self.where}: {said} (line {self.line} of the playbook)", where=self.where)


_Made = dict[str, "_Default | _Made"]
"""The defaults that are rendered, by the mappings they stand in."""


def _made_of(workload: Mapping[str, Any], above: str, path: str, origins: Any) -> _Made:
    found: _Made = {}
    for key, value in workload.items():
        name, own = f"{above}.{key}", origins_at(origins, key)
        if isinstance(value, Mapping) and not any(map(is_template, value)):
            if inside := _made_of(value, name, path, own):
                found[key] = inside
            continue
        where = f"{path}, field {name}"
        made = compile_value(value, where, own)
        if not made.is_constant:
            found[key] = _Default(name, made, where, _line(own) or 1, "keychain" in names_in(value))
    return found


def _line(origins: Any) -> int | None:
    """Return the first line with a template."""
    if isinstance(origins, Origin):
        return origins.of(1)
    parts = origins.values() if isinstance(origins, dict) else origins or ()
    return next(filter(None, map(_line, parts)), None)


def _not_given(made: _Made, given: Mapping[str, Any]) -> _Made:
    """Return those of the defaults that nothing is given for."""
    left: _Made = {}
    for key, default in made.items():
        if key not in given:
            left[key] = default
        elif (
            isinstance(default, dict)
            and isinstance(given[key], Mapping)
            and (inside := _not_given(default, given[key]))
        ):
            left[key] = inside
    return left


class _Rendering:
    """One workload under way: which defaults are being rendered, to find those that need themselves."""

    def __init__(self) -> None:
        self.names: Mapping[str, Any] = {}
        self._under_way: list[str] = []
        self._failure: TemplateFailed | None = None

    def is_rendering(self, default: _Default) -> bool:
        """Tell whether a default is what is being rendered right now."""
        return self._under_way[-1:] == [default.name]

    def value(self, default: _Default) -> Any:
        """Return what a default comes to; what failed once is not tried again by whoever asks for it another way."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._rendered(default)
        except TemplateFailed as failure:
            self._failure = failure
            raise

    def _rendered(self, default: _Default) -> Any:
        if default.reads_secrets:
            raise default.failed(
                "keychain cannot be read in a workload, whose values are recorded: read it in the task that needs it"
            )
        if default.name in self._under_way[:-1]:
            ring = [*self._under_way[self._under_way.index(default.name) :], default.name]
            raise default.failed(f"this default needs itself: {', '.join(ring)}")
        self._under_way.append(default.name)
        try:
            value = _plain(default.value.render(self.names))
        except TemplateFailed as failure:
            missing = str(failure.details.get("missing")).removeprefix("workload.")
            if f"workload.{missing}" != default.name:
                raise
            raise default.failed(f"the request has to give {missing}, which has no default") from None
        finally:
            self._under_way.pop()
        refuse_unrecordable(value, default.where)
        return value


class _Values(Mapping[str, Any]):
    """A mapping of the workload as templates see it; each default in it is rendered once, when it is asked for."""

    def __init__(self, values: Mapping[str, Any], made: _Made, rendering: _Rendering) -> None:
        self._values = values
        self._made = made
        self.rendering = rendering
        self._known: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        default = self._made.get(key)
        if default is None:
            return self._values[key]
        if isinstance(default, _Default) and self.rendering.is_rendering(default):
            raise KeyError(key)
        if key not in self._known:
            self._known[key] = (
                self.rendering.value(default)
                if isinstance(default, _Default)
                else _Values(self._values[key], default, self.rendering)
            )
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        default = self._made.get(str(key))
        is_asked = isinstance(default, _Default) and self.rendering.is_rendering(default)
        return key in self._values and not is_asked

    def __iter__(self) -> Iterator[str]:
        for default in self._made.values():
            if isinstance(default, _Default) and self.rendering.is_rendering(default):
                raise default.failed(f"this default needs itself: {default.name}, {default.name}")
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _plain(value: Any) -> Any:
    """Return a value with nothing in it that is still to be rendered."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
        return [_plain(part) for part in value]
    return value
