"""Two generations of a dataset go in as files, what differs comes out: columns, rows, values. DuckDB answers; only reads."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import msgspec

from noetl.errors import Corrupt, InputError
from noetl.model.dataset import Field
from noetl.pipelines.tables.column_types import schema_of

_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_IN_BOTH: Final = "b.__there AND a.__there"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

    fields: tuple[Field, ...]
    files: tuple[Path, ...]


class ColumnChange(msgspec.Struct, frozen=True, kw_only=True):
    """A column that one side lacks or has in another type."""

    name: str
    change: Literal["added", "removed", "type"]
    before: str | None = None
    after: str | None = None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One row that differs; of a changed one only the columns that do, each as [before, after]."""

    change: Literal["added", "removed", "changed"]
    row: dict[str, Any]
    columns: dict[str, list[Any]] = {}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs. Without a key whole rows are compared, so that a changed row is one removed and one added."""

    key: tuple[str, ...]
    schema: tuple[ColumnChange, ...]
    rows_before: int
    rows_after: int
    added: int
    removed: int
    changed: int
    columns: dict[str, int]
    """How many rows changed in each column; only columns with changes."""
    examples: tuple[Example, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both are the same to a reader."""
        return not (self.schema or self.added or self.removed or self.changed)


def compare(before: Side, after: Side, key: Sequence[str], *, insist: bool = False, examples: int = 5) -> Difference:
    """Compare row by row; a key that is not unique is given up for whole rows, or refused where one insists on it."""
    with tempfile.TemporaryDirectory() as spill, duckdb.connect(config={"temp_directory": spill}) as connection:
        try:
            return _Comparison(connection, before, after, examples).result(tuple(key), insist=insist)
        except (duckdb.IOException, duckdb.InvalidInputException) as problem:
            raise Corrupt(f"a file of the lake cannot be read: {str(problem).splitlines()[0]}") from problem


class _Comparison:
    def __init__(self, connection: duckdb.DuckDBPyConnection, before: Side, after: Side, examples: int) -> None:
        self._connection = connection
        self._examples = examples
        self._before = {one.name: one.type for one in before.fields}
        self._after = {one.name: one.type for one in after.fields}
        self._common = [name for name in self._after if name in self._before]
        for name, side in (("before", before), ("after", after)):
            self._view(name, side)

    def result(self, key: tuple[str, ...], *, insist: bool) -> Difference:
        notes: list[str] = []
        if key:
            problem = self._against(key)
            if problem is not None and insist:
                raise InputError(f"rows cannot be told apart by {', '.join(key)}: {problem}", hint="give another --key")
            if problem is not None:
                notes.append(f"whole rows are compared, since {problem}")
                key = ()
        found = self._by_key(key) if key else self._by_row()
        return Difference(
            key=key,
            schema=self._schema(),
            rows_before=self._count("before"),
            rows_after=self._count("after"),
            notes=tuple(notes),
            **found,
        )

    def _view(self, name: str, side: Side) -> None:
        if not side.files:
            self._connection.register(name, schema_of(side.fields).empty_table())
            return
        paths = ", ".join(_literal(path) for path in side.files)
        # Directories are called after partitions, which are columns in the files already.
        source = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
        there = {row[0] for row in self._connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}  # noqa: S608
        columns = ", ".join(
            _name(one.name) if one.name in there else f"NULL AS {_name(one.name)}" for one in side.fields
        )
        self._connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {columns} FROM {source}")  # noqa: S608

    def _schema(self) -> tuple[ColumnChange, ...]:
        old, new = self._before, self._after
        removed = [ColumnChange(name=name, change="removed", before=old[name]) for name in old if name not in new]
        added = [ColumnChange(name=name, change="added", after=new[name]) for name in new if name not in old]
        types = [
            ColumnChange(name=name, change="type", before=old[name], after=new[name])
            for name in self._common
            if old[name] != new[name]
        ]
        return (*removed, *added, *types)

    def _against(self, key: Sequence[str]) -> str | None:
        """Say why a key does not tell rows apart."""
        for name in key:
            if name not in self._common:
                return f"not both generations have the column {name!r}"
        names = ", ".join(map(_name, key))
        for side in ("before", "after"):
            query = f"SELECT coalesce(sum(n), 0) FROM (SELECT count(*) AS n FROM {side} GROUP BY {names} HAVING n > 1)"  # noqa: S608
            shared = self._number(query)
            if shared:
                return f"{shared} rows of the generation {side} share their {', '.join(key)} with another"
        return None

    def _by_key(self, key: tuple[str, ...]) -> dict[str, Any]:
        compared = [name for name in self._common if name not in key]
        joined = " AND ".join(f"{self._old(name)} IS NOT DISTINCT FROM {self._new(name)}" for name in key)
        there = "SELECT true AS __there, * FROM"
        source = f"({there} before) AS b FULL JOIN ({there} after) AS a ON {joined}"
        differs = {name: f"{self._old(name)} IS DISTINCT FROM {self._new(name)}" for name in compared}
        any_differs = f"{_IN_BOTH} AND ({' OR '.join(differs.values()) or 'false'})"
        counted = [
            "count(*) FILTER (b.__there IS NULL)",
            "count(*) FILTER (a.__there IS NULL)",
            f"count(*) FILTER ({any_differs})",
            *(f"count(*) FILTER ({_IN_BOTH} AND {condition})" for condition in differs.values()),
        ]
        (row,) = self._rows(f"SELECT {', '.join(counted)} FROM {source}")  # noqa: S608
        columns = dict(zip(compared, row[3:], strict=True))
        examples = (
            *self._whole("added", f"FROM {source} WHERE b.__there IS NULL", "a", key),
            *self._whole("removed", f"FROM {source} WHERE a.__there IS NULL", "b", key),
            *self._changed(f"FROM {source} WHERE {any_differs}", key, compared),
        )
        return {
            "added": row[0],
            "removed": row[1],
            "changed": row[2],
            "columns": {name: count for name, count in columns.items() if count},
            "examples": examples,
        }

    def _by_row(self) -> dict[str, Any]:
        if not self._common:
            return {"added": 0, "removed": 0, "changed": 0, "columns": {}, "examples": ()}
        old = f"SELECT {', '.join(f'{self._old(name)} AS {_name(name)}' for name in self._common)} FROM before AS b"  # noqa: S608
        new = f"SELECT {', '.join(f'{self._new(name)} AS {_name(name)}' for name in self._common)} FROM after AS a"  # noqa: S608
        added, removed = f"({new} EXCEPT ALL {old}) AS x", f"({old} EXCEPT ALL {new}) AS x"
        return {
            "added": self._number(f"SELECT count(*) FROM {added}"),  # noqa: S608
            "removed": self._number(f"SELECT count(*) FROM {removed}"),  # noqa: S608
            "changed": 0,
            "columns": {},
            "examples": (
                *self._whole("added", f"FROM {added}", "x", self._common),
                *self._whole("removed", f"FROM {removed}", "x", self._common),
            ),
        }

    def _whole(
        self, change: Literal["added", "removed"], source: str, alias: str, ordered: Sequence[str]
    ) -> Iterator[Example]:
        names = self._common if alias == "x" else list(self._after if alias == "a" else self._before)
        columns = ", ".join(f"{alias}.{_name(name)}" for name in names)
        order = ", ".join(f"{alias}.{_name(name)}" for name in ordered)
        for row in self._rows(f"SELECT {columns} {source} ORDER BY {order} LIMIT {self._examples}"):
            yield Example(change=change, row=dict(zip(names, row, strict=True)))

    def _changed(self, source: str, key: Sequence[str], compared: Sequence[str]) -> Iterator[Example]:
        names = [*key, *compared]
        columns = ", ".join(f"b.{_name(name)}, a.{_name(name)}" for name in names)
        order = ", ".join(f"a.{_name(name)}" for name in key)
        for row in self._rows(f"SELECT {columns} {source} ORDER BY {order} LIMIT {self._examples}"):
            pairs = {name: [row[2 * place], row[2 * place + 1]] for place, name in enumerate(names)}
            yield Example(
                change="changed",
                row={name: pairs[name][1] for name in key},
                columns={name: pairs[name] for name in compared if pairs[name][0] != pairs[name][1]},
            )

    def _old(self, name: str) -> str:
        return self._comparable("b", name)

    def _new(self, name: str) -> str:
        return self._comparable("a", name)

    def _comparable(self, alias: str, name: str) -> str:
        """Return a column so that both sides can be compared: as text where their types have nothing in common."""
        column = f"{alias}.{_name(name)}"
        kinds = self._before[name], self._after[name]
        alike = kinds[0] == kinds[1] or all(kind.startswith(_NUMBERS) for kind in kinds)
        return column if alike else f"{column}::VARCHAR"

    def _count(self, side: str) -> int:
        return self._number(f"SELECT count(*) FROM {side}")  # noqa: S608

    def _number(self, query: str) -> int:
        ((found,),) = self._rows(query)
        return int(found)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()


def _name(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _literal(path: Path) -> str:
    """Return a path as DuckDB reads it as just that path, not as a pattern."""
    plain = re.sub(r"[*?[]", lambda found: f"[{found[0]}]", str(path)).replace("'", "''")
    return f"'{plain}'"
