"""Finds the operator of a name: our own, or one of an installed package (entry point group `noetl.operators`)."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from noetl.errors import InputError
from noetl.spark.operators.built_in import compact, quality_check
from noetl.spark.operators.port import Operator
from noetl.spark.operators.pyspark_function import pyspark_function
from noetl.spark.operators.spark_sql import spark_sql

GROUP: Final = "noetl.operators"
OWN: Final[dict[str, Operator]] = {
    "compact": compact,
    "pyspark": pyspark_function,
    "quality_check": quality_check,
    "spark_sql": spark_sql,
}


@cache
def operator_of(name: str) -> Operator:
    """Return the operator of a name."""
    if name in OWN:
        return OWN[name]
    installed = {one.name: one for one in entry_points(group=GROUP)}
    if name not in installed:
        near = difflib.get_close_matches(name, [*OWN, *installed], n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"there is no operator {name!r} for Spark{meant}")
    loaded: Operator = installed[name].load()
    return loaded
