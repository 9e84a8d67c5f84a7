"""Queries over datasets: files go in as tables under fixed names, the rows of one checked SELECT come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.errors import InputError, Unsupported
from noetl.payloads.codec import encode_table
from noetl.spark.lake import Lake
from noetl.spark.protocol import RunSelect
from noetl.spark.reading import files_frame
from noetl.spark.working import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    # Or `${env:NAME}` in a text would become what the environment says.
    "spark.sql.variable.substitute": "false",
}
"""What a session for queries has beside what every session has."""


_FORGOTTEN: Final = ("reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start")
"""Functions that the session of a query does not have: no query that passed the gate calls one."""


def selected(session: SparkSession, asked: RunSelect, lake: Lake) -> dict[str, Any]:
    """Run a query and return its rows as an Arrow stream."""
    from pyspark.errors import AnalysisException, ParseException

    _forget_functions(session)
    for one in asked.relations:
        frame = files_frame(session, one.columns, [(entry, 0) for entry in one.files], lake)
        frame.createOrReplaceTempView(one.name)
    try:
        return {"table": encode_table(session.sql(asked.sql).toArrow()).data}
    except (AnalysisException, ParseException) as problem:
        raise InputError(_first_words(problem)) from None


def _forget_functions(session: Any) -> None:
    """Take from a session of this JVM what reaches beyond rows; a Spark Connect server keeps its own."""
    if is_connect(session):
        return
    registry = session._jsparkSession.sessionState().functionRegistry()
    named, some = session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier, session._jvm.scala.Some
    for name in _FORGOTTEN:
        if not registry.dropFunction(named(name, some("builtin"), some("system"))):
            raise Unsupported(f"this Spark does not let go of its function {name}, so it answers no queries")


def _first_words(problem: Exception) -> str:
    """Return what Spark says without the plan and the SQL it adds."""
    return str(problem).partition(" SQLSTATE")[0].partition(";\n")[0].strip()[:2000]
