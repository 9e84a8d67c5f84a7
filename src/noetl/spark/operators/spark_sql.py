"""The operator `spark_sql`: one SELECT over the inputs, each known by its alias."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from sqlglot import exp

from noetl.errors import InputError
from noetl.spark.drivers.protocol import Work
from noetl.spark.operators.port import Given, Made
from noetl.spark.queries.tree import one_query


def spark_sql(given: Given) -> Made:
    """Answer the job's query."""
    sql = job_query(given.work)
    refuse_other_relations(sql, given.inputs)
    for alias, rows in given.inputs.items():
        rows.createOrReplaceTempView(alias)
    return Made({0: given.session.sql(sql)})


def job_query(work: Work) -> str:
    """Return the SQL of a job."""
    sql = work.grant.config.get("sql")
    if not isinstance(sql, str) or not sql.strip():
        raise InputError(f"job {work.grant.job!r} has no SQL: give `sql` or `file`")
    return sql.strip().rstrip(";")


def refuse_other_relations(sql: str, aliases: Collection[str]) -> None:
    """Refuse a query that reads anything but the inputs: files, tables of the catalog, other data."""
    tree = one_query(sql)
    known = {alias.lower() for alias in aliases} | {one.alias.lower() for one in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        if table.db or table.name.lower() not in known:
            name = f"{table.db}.{table.name}" if table.db else table.name
            near = difflib.get_close_matches(name, list(aliases), n=1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; its inputs are {', '.join(aliases) or 'none'}"
            raise InputError(f"the SQL reads {name!r}, which is no input of the job{meant}")
