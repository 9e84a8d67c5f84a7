"""Groups the fact of a curated view on Spark: checked SQL over events of all tenants goes in, sums per organization come out.

A program of a driver: what it is told comes from the worker, which redacts what is returned. Nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.kernel.payloads.codec import encode_table
from noetl.spark.drivers.programs import Call
from noetl.spark.source import register
from noetl.spark.source.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def groups(session: SparkSession, call: Call) -> dict[str, Any]:
    """Run the SQL of a view, in which `{events}` stands for events up to a mark, and return its rows."""
    told = call.arguments
    register(session)
    # As they were written: PostgreSQL, which gives the same rows, knows no upcasters.
    reach = {**call.reach, "upcasters": []}
    options = source_options(None, reach, types=",".join(told["types"]), upto=told["mark"], since=told["since"])
    events = session.read.format("noetl").options(**options).load().select(*told["columns"])
    return {"table": encode_table(session.sql(told["sql"], events=events).toArrow()).data}
