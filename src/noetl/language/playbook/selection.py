"""Taking values out of results and gathering results: plain values go in, plain values come out, nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Accumulate, Select

_STEP = re.compile(r"""\.?([^.\[\]"'$]+)|\[(-?[0-9]{1,18})\]|\[(?:"([^"]*)"|'([^']*)')\]""")

_LONGEST_PATH: Final = 1_000


def select(data: Any, selects: Iterable[Select]) -> dict[str, Any]:
    """Return the values that the paths name, under the names they are to have."""
    return {one.name: at_path(data, one.path) for one in selects}


def at_path(data: Any, path: str) -> Any:
    """Return what stands at a path such as `$.rows[0].id`; the error says how far the path leads."""
    value = data
    keys = _keys(path)
    for depth, key in enumerate(keys):
        try:
            if not isinstance(value, Mapping if isinstance(key, str) else list):
                raise KeyError
            value = value[key]  # type: ignore[index]
        except (KeyError, IndexError):
            reached = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in keys[:depth])
            kind = (
                "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else "a plain value"
            )
            raise TemplateFailed(
                f"the path {path} leads nowhere: {reached} is {kind} without {key!r}", missing=path
            ) from None
    return value


@lru_cache(maxsize=4096)
def _keys(path: str) -> tuple[str | int, ...]:
    if len(path) > _LONGEST_PATH:
        raise TemplateFailed(f"a path has at most {_LONGEST_PATH:,} characters, and this one has {len(path):,}")
    keys: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise TemplateFailed(f"{path!r} is no path such as $.rows[0].id", missing=path)
        name, index, double, single = found.groups()
        keys.append(
            int(index) if index is not None else next(part for part in (name, double, single) if part is not None)
        )
        at = found.end()
    return tuple(keys)


def accumulate(previous: Any, data: Any, how: Accumulate) -> Any:
    """Return what was gathered so far (None at first) with one more result.

    `append` lists results, `concat` joins lists, `merge` lays mappings over each other and `replace` keeps the last.
    With `merge_path` only what stands there is gathered. What goes beyond `max_items` is left out.
    """
    value = data if how.merge_path is None else at_path(data, how.merge_path)
    if how.strategy == "replace":
        return value
    if how.strategy == "merge":
        if not isinstance(value, Mapping):
            raise TemplateFailed("accumulate: merge needs results that are mappings")
        return _first(_merged({} if previous is None else previous, value), how.max_items)
    if how.strategy == "concat" and not isinstance(value, list):
        raise TemplateFailed("accumulate: concat needs results that are lists")
    gathered = [] if previous is None else previous
    return [*gathered, *(value if how.strategy == "concat" else [value])][: how.max_items]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _first(values: dict[str, Any], count: int | None) -> dict[str, Any]:
    return values if count is None or len(values) <= count else dict(list(values.items())[:count])
