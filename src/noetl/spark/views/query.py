"""The query of a view over whatever holds its source's rows: the same one for a stream and in one go."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import InputError
from noetl.spark.source.columns import NAMES, SPARK_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY, VALUE, KEPT = "noetl_key", "noetl_value", "noetl_kept"
"""The columns a result is told by: its key and the whole row as JSON, and whether it stays in the view."""
_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"}
_AGGREGATE: Final = "Aggregate"
_FILTER: Final = "Filter"


def schema_of(columns: Sequence[str] | None) -> str:
    """Return the columns of events that a query reads: Spark leaves none out by itself for a source in Python."""
    wanted = NAMES if columns is None else [name for name in NAMES if name in columns]
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in wanted)


def result_of(session: SparkSession, rows: DataFrame, asked: Mapping[str, Any]) -> DataFrame:
    """Return the result of a view's SELECT or function over its rows."""
    if asked.get("sql") is not None:
        rows.createOrReplaceTempView(asked["relation"])
        found = session.sql(asked["sql"])
    else:
        found = _function(asked["file"], asked["function"])(rows)
        if not hasattr(found, "mapInArrow"):
            raise InputError(f"{asked['function']} in {asked['file']} must return a DataFrame")
    if asked.get("rollup") is None:
        _hold_keys(found, asked)
    return found


def rolled(rows: DataFrame, asked: Mapping[str, Any]) -> DataFrame:
    """Return the rollup of all rows that a query groups, or the rows themselves where the view has none."""
    if asked.get("rollup") is None:
        return rows
    rows.createOrReplaceTempView("rows")
    found = rows.sparkSession.sql(asked["rollup"])
    _hold_keys(found, asked)
    return found


def _hold_keys(found: DataFrame, asked: Mapping[str, Any]) -> None:
    missing = [key for key in asked["keys"] if key not in found.columns]
    if missing:
        raise InputError(
            f"the key {missing[0]} of view {asked['view']} is no column of its result",
            hint=f"it has {', '.join(found.columns)}",
        )


def shaped(result: DataFrame, asked: Mapping[str, Any]) -> DataFrame:
    """Return a result as keys, rows and whether they stay."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    kept = F.expr(condition(asked))
    return result.select(
        F.to_json(F.struct(*asked["keys"]), _JSON).alias(KEY),
        F.to_json(F.struct(*(F.col(f"`{name}`") for name in result.columns)), _JSON).alias(VALUE),
        kept.alias(KEPT),
    )


def condition(asked: Mapping[str, Any]) -> str:
    """Return the condition under which a row of the result stays; what is not known does not."""
    return "true" if asked.get("keep") is None else f"coalesce(({asked['keep']}), false)"


def hold_streamed(result: DataFrame, view: str) -> bool:
    """Refuse a filter after grouping, which leaves rows behind; tell whether the result is grouped at all."""
    plan: Any = result._jdf.queryExecution().analyzed()
    if _below(plan, _FILTER, _AGGREGATE):
        raise InputError(
            f"view {view} filters after grouping, so rows that no longer hold would stay in it",
            hint="write the condition as keep: … of the view",
        )
    return _has(plan, _AGGREGATE)


def _has(plan: Any, name: str) -> bool:
    return plan.nodeName() == name or any(_has(child, name) for child in _children(plan))


def _below(plan: Any, above: str, name: str) -> bool:
    if plan.nodeName() == above and any(_has(child, name) for child in _children(plan)):
        return True
    return any(_below(child, above, name) for child in _children(plan))


def _children(plan: Any) -> list[Any]:
    found = plan.children()
    return [found.apply(place) for place in range(found.size())]


def _function(file: str, name: str) -> Any:
    module = ".".join(PurePosixPath(file).with_suffix("").parts)
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(f"{file} needs the module {error.name}, which is not installed where Spark runs") from error
    return found
