"""What templates see in a step: the execution's values go in, the names of one run or one row come out.

A run's names are its own: `set` changes them at once for what follows in the run and records each write in order;
what other runs see is never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import msgspec

from noetl.errors import PlaybookInvalid, TemplateFailed
from noetl.language.templates.origins import origins_at
from noetl.language.templates.result_view import output_view
from noetl.language.templates.sandbox import NotRun
from noetl.language.templates.template import CompiledValue, compile_value

ScopeName = Literal["ctx", "iter", "step"]

LOCALS = frozenset({"_prev", "_task", "_attempt", "results", "output"})
RESERVED = LOCALS | {
    "workload", "ctx", "iter", "loop", "step", "input", "event", "execution_id", "catalog_id", "keychain", "frame",
}  # fmt: skip
"""Names that no workload key, step, task or iterator takes over."""


class Shared(dict[str, Any]):
    """The values of `ctx`. A name that nothing has set is looked up in the workload, and only looked up: it is no part."""

    __slots__ = ("_workload",)

    def __init__(self, ctx: Mapping[str, Any], workload: Mapping[str, Any]) -> None:
        super().__init__(ctx)
        self._workload = workload

    def __missing__(self, name: str) -> Any:
        return self._workload[name]


class Names(dict[str, Any]):
    """The names of one run of a step, or of one row of it, with the writes made so far by dotted path.

    A value of `ctx` is also there by its bare name, unless something that comes before it has that name. A binding of
    `input` is found by its bare name where nothing else is called so.
    """

    __slots__ = ("_above", "_own", "_steps", "ctx_writes", "iter_writes", "step_writes")

    def __init__(
        self,
        names: Mapping[str, Any],
        *,
        above: frozenset[str] = frozenset(),
        steps: Collection[str] = frozenset(),
    ) -> None:
        super().__init__(names)
        self["iter"] = {**self.get("iter", _EMPTY)}
        self["step"] = {**self.get("step", _EMPTY)}
        self["results"] = {}
        self["_prev"] = None
        self.ctx_writes: dict[str, Any] = {}
        self.iter_writes: dict[str, Any] = {}
        self.step_writes: dict[str, Any] = {}
        self._above, self._steps = above, steps
        self._own: set[str] = set()
        """Names that come before values of `ctx`, besides those `above` them, and that this run alone has."""
        if isinstance(names, Names):
            self._above, self._steps, self._own = names._above, names._steps, set(names._own)

    def __missing__(self, name: str) -> Any:
        given = self.get("input")
        if isinstance(given, Mapping) and name in given:
            return given[name]
        if name in self._steps:
            return NotRun(name=name)
        raise KeyError(name)

    def keep(self, name: str, value: Any) -> None:
        """Give a name a value that comes before a value of `ctx` of that name; names of the language stay."""
        if name not in RESERVED:
            self[name] = value
            self._own.add(name)

    def is_kept(self, name: str) -> bool:
        """Tell whether this run has given a name a value of its own."""
        return name in self._own

    def put_ctx(self, ctx: Mapping[str, Any], changed: Iterable[str]) -> None:
        """Take over the shared values, of which those at some dotted paths have changed."""
        self["ctx"] = Shared(ctx, self.get("workload", _EMPTY))
        for path in changed:
            name = path.partition(".")[0]
            if name not in RESERVED and name not in self._above and name not in self._own:
                self[name] = ctx[name]

    def for_run(self, **values: Any) -> Names:
        """Return names for another run of the step, with these values besides; what it writes stays with it."""
        names = Names(self)
        names.update(values)
        return names

    def for_row(self, iterator: str, row: Any, index: int, *, length: int | None = None, **fields: Any) -> Names:
        """Return names for one row; `fields`, such as `_frame_index`, are visible in `iter`."""
        names = Names(self)
        is_last = length is not None and index == length - 1
        names["iter"].update(fields, _index=index, _first=index == 0, _last=is_last)
        names["iter"][iterator] = row
        names["loop"] = {"index": index, "first": index == 0, "last": is_last, "length": length, "done": False}
        names.keep(iterator, row)
        return names

    def for_frame(self, iterator: str, rows: list[Any], frame: Mapping[str, Any]) -> Names:
        """Return names for a frame whose rows are worked off together: `frame.rows`, `iter.<iterator>`, `iter.<iterator>_rows`."""
        names = Names(self)
        names["frame"] = {**frame, "rows": rows, "row_count": len(rows)}
        names["iter"][iterator] = names["iter"][f"{iterator}_rows"] = rows
        names.keep(iterator, rows)
        return names


_EMPTY: Mapping[str, Any] = {}


def names_of(
    *,
    execution_id: int | str,
    workload: Mapping[str, Any] = _EMPTY,
    ctx: Mapping[str, Any] = _EMPTY,
    results: Mapping[str, Any] = _EMPTY,
    steps: Collection[str] = (),
    input: Mapping[str, Any] = _EMPTY,  # noqa: A002
    event: Mapping[str, Any] = _EMPTY,
    catalog_id: object = None,
    job: Mapping[str, Any] = _EMPTY,
    keychain: Mapping[str, Any] = _EMPTY,
    output: Mapping[str, Any] | None = None,
) -> Names:
    """Return the names every run of a step starts from; `results` are those of other steps, by step.

    A step's name comes before a value of `ctx`, that before a workload key, and a scope's name before all. `steps` are
    all there are: one that has not run is known to conditions.
    """
    names: dict[str, Any] = {**workload, **ctx, "job": job, **results}
    names |= {
        "workload": workload,
        "ctx": Shared(ctx, workload),
        "iter": {},
        "step": {},
        "input": input,
        "event": event,
        "keychain": keychain,
        "execution_id": str(execution_id),
        "catalog_id": None if catalog_id is None else str(catalog_id),
    }
    for absent in (LOCALS | {"loop", "frame"}) & names.keys():
        del names[absent]
    if output is not None:
        names["output"] = output_view(output)
    return Names(names, above=frozenset({"job", *results}), steps=steps)


class Assignment(msgspec.Struct, frozen=True):
    """One line of a `set`: where the value goes and how it is made."""

    scope: ScopeName
    path: tuple[str, ...]
    value: CompiledValue
    where: str

    @property
    def dotted(self) -> str:
        """The path inside its scope."""
        return ".".join(self.path)


CompiledSet = tuple[Assignment, ...]


def compile_set(assignments: Mapping[str, Any], where: str, origins: Any = None) -> CompiledSet:
    """Return a `set` ready to be applied often. A key without a scope belongs to `ctx`."""
    where = f"{where}, field set"
    return tuple(_assignment(key, value, where, origins_at(origins, key)) for key, value in assignments.items())


def _assignment(key: str, value: Any, where: str, origins: Any) -> Assignment:
    first, *rest = parts = str(key).split(".")
    if not all(parts):
        raise PlaybookInvalid(f"{where}: {key!r} is no path such as ctx.total")
    compiled = compile_value(value, f"{where}.{key}", origins)
    if first in ("ctx", "iter", "step"):
        if not rest:
            raise PlaybookInvalid(f"{where}: {key!r} names a whole scope: set a value in it, such as {key}.total")
        scope: ScopeName = first  # type: ignore[assignment]
        return Assignment(scope, tuple(rest), compiled, f"{where}.{key}")
    if first in RESERVED and rest:
        raise PlaybookInvalid(f"{where}: {key!r} cannot be set: only ctx, iter and step can")
    return Assignment("ctx", tuple(parts), compiled, f"{where}.{key}")


def apply_set(names: Names, assignments: CompiledSet | Mapping[str, Any], *, may_lack: bool = False) -> dict[str, Any]:
    """Write values into a run's names and return them by full path. All are rendered before the first is written.

    Where they `may_lack` what they ask for, as after an error, those that do are left out.
    """
    if isinstance(assignments, Mapping):
        assignments = compile_set(assignments, "set")
    if may_lack:
        assignments = tuple(one for one in assignments if not _lacks(one, names))
    rendered = [assignment.value.render(names) for assignment in assignments]
    # Checked before the first write, too: a `set` happens as a whole or not at all.
    changed: dict[str, Any] = {}
    for assignment, value in zip(assignments, rendered, strict=True):
        scope = assignment.scope
        changed[scope] = _with(changed.get(scope, names[scope]), assignment.path, value, assignment)
    if "ctx" in changed:
        ctx, paths = changed.pop("ctx"), [one.dotted for one in assignments if one.scope == "ctx"]
        names.put_ctx(ctx, paths)
    names.update(changed)
    written = {}
    for assignment, value in zip(assignments, rendered, strict=True):
        record = names.ctx_writes if assignment.scope == "ctx" else _private(names, assignment.scope)
        # A path written again moves to the end, so that playing the writes back gives the same values.
        record.pop(assignment.dotted, None)
        record[assignment.dotted] = value
        written[f"{assignment.scope}.{assignment.dotted}"] = value
    return written


def _lacks(assignment: Assignment, names: Names) -> bool:
    try:
        assignment.value.render(names)
    except TemplateFailed as failure:
        if "missing" in failure.details:
            return True
        raise
    return False


def _private(names: Names, scope: ScopeName) -> dict[str, Any]:
    return names.iter_writes if scope == "iter" else names.step_writes


def _with(values: Any, path: tuple[str, ...], value: Any, assignment: Assignment) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise TemplateFailed(
            f"{assignment.where}: {assignment.scope}.{assignment.dotted} cannot be set,"
            f" for what stands above {path[0]!r} is no mapping",
            where=assignment.where,
        )
    key, *rest = path
    inner = value if not rest else _with(values.get(key, _EMPTY), tuple(rest), value, assignment)
    return {**values, key: inner}
