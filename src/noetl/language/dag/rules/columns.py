"""What must hold of columns: types that exist, keys that are columns, checks with what their kind needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from noetl.language.dag.ddl import NotAType, spelled
from noetl.language.dag.operators import DELIVERY_COLUMNS
from noetl.language.dag.written_job import WrittenJob
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "not_null": ("columns",),
    "unique": ("columns",),
    "range": ("columns", "min", "max"),
    "set": ("columns", "values"),
    "row_count": ("min", "max"),
    "freshness": ("columns", "max_age_seconds"),
    "sql": ("sql",),
}
"""The fields each kind of check has; of `min` and `max` one is enough."""
_EITHER: Final = ("min", "max")
_ALWAYS: Final = ("kind", "severity", "output")


class ColumnRules:
    """Holds the columns of one job to their rules; `known` are those its SQL has, if that can be told."""

    def __init__(self, problems: Problems, job: WrittenJob, known: Collection[str] | None) -> None:
        self._problems = problems
        self._job = job
        self._known = known

    def hold(self) -> None:
        """Note what breaks a rule."""
        declared = self._declared()
        known = self._known if declared is None else declared
        for key in ("partition_by", "unique_key"):
            columns = self._job.columns(key)
            self._once(columns, key)
            self._exist(columns, known, key)
        for check in self._job.items("checks"):
            self._check(check, known)
        for check in self._job.items("config", "checks") if self._job.operator == "quality_check" else []:
            self._check(check, None)

    def _declared(self) -> Collection[str] | None:
        columns = self._job.items("schema", "columns")
        names = [name for one in columns if (name := one.get("name")) is not None and name.text is not None]
        self._once(names, "schema.columns")
        for one in columns:
            kind = one.get("type")
            if kind is None or kind.text is None:
                continue
            try:
                spelled(kind.text)
            except NotAType as error:
                name = one.get("name")
                said = f"the type of {'a column' if name is None else name.text} cannot be read: {error}"
                self._problems.error("unknown_type", said, kind.place, "write a type of Spark, such as bigint")
        if self._known is not None and names:
            self._exist(names, self._known, "schema.columns")
        added = DELIVERY_COLUMNS if self._job.tells_delivery else ()
        return [*(str(name.text) for name in names), *added] if names else None

    def _check(self, check: Node, known: Collection[str] | None) -> None:
        named = check.get("kind")
        kind = None if named is None else named.text
        if kind is None or kind not in NEEDS:
            return
        fields = NEEDS[kind]
        for key in check.mapping:
            if key not in fields and key not in _ALWAYS and any(key in other for other in NEEDS.values()):
                said = f"{key} means nothing to the check {kind}"
                self._problems.error("misplaced_field", said, check.key_place(key), f"it has {', '.join(fields)}")
        for key in fields:
            enough = _EITHER if key in _EITHER else (key,)
            if key != "max" and not any(one in check.mapping for one in enough):
                hint = f"write {key}: …"
                self._problems.error(
                    "missing_field", f"the check {kind} needs {' or '.join(enough)}", check.place, hint
                )
        self._bounds(check, kind)
        columns = check.get("columns")
        texts = [] if columns is None else [one for one in columns.items if one.text is not None]
        if kind == "freshness" and len(texts) > 1:
            self._problems.error("wrong_value", "freshness looks at one column", texts[1].place, "remove the others")
        self._exist(texts, known, f"the check {kind}")
        output = check.get("output")
        if output is not None and isinstance(output.value, int) and output.value >= max(self._job.outputs, 1):
            said = f"{self._job.name} has no output {output.value}"
            self._problems.error("unknown_output", said, output.place, "outputs are counted from 0")

    def _bounds(self, check: Node, kind: str) -> None:
        bounds = [bound for key in _EITHER if (bound := check.get(key)) is not None]
        for bound in bounds:
            whole = type(bound.value) is int and bound.value >= 0
            if kind == "row_count" and not whole:
                said = "row_count is compared with whole numbers from 0"
                self._problems.error("wrong_value", said, bound.place)
            elif kind == "range" and type(bound.value) not in (int, float, str):
                self._problems.error("wrong_value", "a bound is a number, or text such as a date", bound.place)
        if len(bounds) == 2:
            least, most = (bound.value for bound in bounds)
            numbers = type(least) in (int, float) and type(most) in (int, float)
            if (numbers or (type(least) is str and type(most) is str)) and least > most:  # type: ignore[operator]
                self._problems.error("wrong_value", "min is greater than max", bounds[0].place, "exchange them")
            elif (type(least) is str) != (type(most) is str):
                self._problems.error("wrong_value", "min and max are of different kinds", bounds[1].place)

    def _once(self, columns: Iterable[Node], where: str) -> None:
        seen: set[str] = set()
        for one in columns:
            name = str(one.text).lower()
            if name in seen:
                self._problems.error(
                    "duplicate_column", f"{one.text} stands twice in {where}", one.place, "remove one of them"
                )
            seen.add(name)

    def _exist(self, columns: Iterable[Node], known: Collection[str] | None, where: str) -> None:
        if known is None:
            return
        lower = {name.lower() for name in known}
        for one in columns:
            if str(one.text).lower() not in lower:
                said = f"{where} names {one.text}, which is no column of {self._job.name}"
                self._problems.error("unknown_column", said, one.place, suggest(str(one.text), known))
