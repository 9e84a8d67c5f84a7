"""The lineage of what a job made, computed once per job in this driver: from the tree of its SQL and from Spark's plan.

It never fails a task and never waits for data: where it cannot be had, it is told as unknown, with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from noetl.language.columns.plan.lineage import MARK, plan_lineage
from noetl.language.columns.sql.lineage import query_lineage
from noetl.model.lineage import Lineage, opaque
from noetl.spark.drivers.ongoing_work import is_connect
from noetl.spark.drivers.protocol import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEPT: Final = 1024
_lock = threading.Lock()
_told: dict[tuple[str, str], dict[int, Lineage]] = {}


def marked(rows: DataFrame, alias: str) -> DataFrame:
    """Return the rows of an input so that they are known in any plan that is built on them."""
    return rows.alias(MARK + alias)


def told_lineage(
    work: Work, outputs: Mapping[int, DataFrame], inputs: Mapping[str, DataFrame], sql: str | None = None
) -> dict[int, Lineage]:
    """Return the lineage of each output of a job; `sql` is its query, if it is one."""
    grant = work.grant
    known = [(alias, rows.columns) for alias, rows in inputs.items()]
    key = (grant.job_id, repr((grant.operator, grant.config, known)))
    with _lock:
        if key not in _told:
            if len(_told) >= _KEPT:
                _told.clear()
            _told[key] = {output: _of(rows, inputs, sql) for output, rows in outputs.items()}
        return _told[key]


def _of(rows: DataFrame, inputs: Mapping[str, DataFrame], sql: str | None) -> Lineage:
    columns = rows.columns
    try:
        by_tree = (
            None if sql is None else query_lineage(sql, {alias: one.columns for alias, one in inputs.items()}, columns)
        )
        if is_connect(rows.sparkSession):
            return by_tree or opaque("unknown", columns, inputs, "a Spark Connect server does not show its plans")
        by_plan = plan_lineage(_plan(rows), list(inputs), columns, from_code=sql is None)
        if by_tree is None or by_tree.edges != by_plan.edges:
            return by_plan
        return by_tree
    except Exception as problem:
        first = (str(problem).strip() or "no message").splitlines()[0]
        return opaque("unknown", columns, inputs, f"{type(problem).__name__}: {first[:300]}")


def _plan(rows: DataFrame) -> str:
    text: str = rows._jdf.queryExecution().analyzed().toJSON()
    return text
