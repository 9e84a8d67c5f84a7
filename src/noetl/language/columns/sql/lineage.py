"""The lineage of one Spark SQL query: its text and the columns of its inputs go in, where each column comes from comes out.

The tree of the query is followed by Spark's own rules of names. What cannot be followed makes all columns opaque, and
says so; nothing is ever left out in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noetl.language.columns.origins import NOTHING, NotUnderstood, Origins
from noetl.language.columns.sql.queries import Walk
from noetl.language.columns.sql.relations import Relation, tables_of
from noetl.model.lineage import Lineage, lineage_of, opaque

_DIALECT: Final = "spark"


def query_lineage(sql: str, inputs: Mapping[str, Sequence[str]], columns: Sequence[str] | None = None) -> Lineage:
    """Return the lineage of a query over inputs by alias; `columns` are the names of its answer where they are known."""
    try:
        return _followed(sql, inputs, columns)
    except NotUnderstood as problem:
        return opaque("opaque", columns or ("*",), inputs, f"the SQL cannot be followed: {problem}")
    except RecursionError:
        return opaque("opaque", columns or ("*",), inputs, "the SQL is nested too deeply to be followed")


def _followed(sql: str, inputs: Mapping[str, Sequence[str]], columns: Sequence[str] | None) -> Lineage:
    try:
        found = [one for one in sqlglot.parse(sql, dialect=_DIALECT) if one is not None]
    except SqlglotError as problem:
        raise NotUnderstood("it cannot be read") from problem
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise NotUnderstood("it is not one SELECT")
    answer = Walk(tables_of(inputs)).query(found[0], {}, None)
    named = _named(answer, columns)
    return lineage_of("sql", named, answer.indirect)


def _named(answer: Relation, columns: Sequence[str] | None) -> dict[str, Origins]:
    """Give the columns of the answer their names: by their places, or by name where not all are listed."""
    if columns is None:
        if answer.rest is not None:
            raise NotUnderstood("a star over columns that cannot be listed")
        return dict(answer.columns)
    if answer.rest is not None:
        return {name: answer.find(name) or NOTHING for name in columns}
    if len(columns) != len(answer.columns):
        raise NotUnderstood(f"it has {len(answer.columns)} columns by its tree, and {len(columns)} in truth")
    return {name: origins for name, (_, origins) in zip(columns, answer.columns, strict=True)}
