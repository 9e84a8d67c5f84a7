"""Runs one agent: the code of a python task, read as text. It finds `agent`, which says what to load and how to call it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import Any

_METHODS = ("ainvoke", "run_async", "invoke", "run")


async def main(agent: dict[str, Any]) -> Any:
    """Load the entrypoint, call it with the payload, and return what it came to; what it yields is a list."""
    found = _loaded(agent["entrypoint"])
    if agent["mode"] == "factory" or (agent["mode"] is None and (agent["args"] or inspect.isclass(found))):
        found = found(**agent["args"])
        found = await found if inspect.isawaitable(found) else found
    result = _called(_method(found, agent["method"]), agent["payload"], agent["kwargs"])
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "__aiter__"):
        return [each async for each in result]
    return list(result) if inspect.isgenerator(result) else result


def _loaded(entrypoint: str) -> Any:
    place, found, name = entrypoint.rpartition(":")
    if not found or not place or not name:
        raise ValueError(f"entrypoint {entrypoint!r} is neither module:function nor file.py:function")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _method(found: Any, wanted: str | None) -> Any:
    if wanted:
        return getattr(found, wanted)
    if inspect.isroutine(found):
        return found
    for name in _METHODS:
        if callable(getattr(found, name, None)):
            return getattr(found, name)
    if callable(found):
        return found
    raise TypeError(f"{type(found).__name__} is not callable and has none of {', '.join(_METHODS)}; name invoke_method")


def _called(function: Any, payload: dict[str, Any], kwargs: dict[str, Any]) -> Any:
    """Call with the payload's values by name where the parameters are named like them, else with the payload as a whole."""
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if not takes_any and not any(each.name in payload for each in named):
        takes_one = any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)
        return function(payload, **kwargs) if takes_one else function(**kwargs)
    known = {each.name for each in named}
    return function(**{name: value for name, value in payload.items() if takes_any or name in known}, **kwargs)
