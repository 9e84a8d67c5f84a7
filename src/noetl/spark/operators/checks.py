"""Checks and the files they are about go in, how each came out comes out. Rows are read only where footers do not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from noetl.errors import InputError
from noetl.language.dag.model import Check
from noetl.model.task import CheckResult
from noetl.spark.lake.reader import TASK, files_frame
from noetl.spark.lake.storage import Lake
from noetl.spark.operators.footer_checks import WHOLE, Subject, counted, fresh, proved
from noetl.spark.queries.combined import carry
from noetl.spark.queries.combined_joins import NotSeparable
from noetl.spark.queries.tree import one_query

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RELATION: Final = "output"
"""What the query of a check calls the rows it is about."""
Violations = dict[tuple[int, int], tuple[int, str]]
"""How many rows break a check, and in what words, by subject and check."""


def run_checks(
    session: SparkSession, checks: Sequence[Check], subjects: Sequence[Subject], lake: Lake, now: datetime | None = None
) -> list[tuple[CheckResult, ...]]:
    """Check every subject, all of one schema, in as few Spark jobs as can be; results in the order of the checks."""
    now = now or datetime.now(UTC)
    found: Violations = {}
    for number, check in enumerate(checks):
        _refuse_unknown_columns(check, subjects)
        for index, subject in enumerate(subjects):
            known = proved(check, subject, now)
            if known is not None:
                found[index, number] = known
    for whole in (False, True):
        open_checks = {
            number: check
            for number, check in enumerate(checks)
            if (check.kind in WHOLE) == whole and any((index, number) not in found for index in range(len(subjects)))
        }
        if open_checks:
            found = _by_rows(session, open_checks, subjects, lake, now) | found
    return [
        tuple(_result(check, *found[index, number]) for number, check in enumerate(checks))
        for index in range(len(subjects))
    ]


def _by_rows(
    session: SparkSession, checks: Mapping[int, Check], subjects: Sequence[Subject], lake: Lake, now: datetime
) -> Violations:
    """Read the rows of all subjects once, for all checks that are sums over rows, and once for each query."""
    some = next(iter(checks.values()))
    files = [(entry, index) for index, subject in enumerate(subjects) for entry in subject.of(some)]
    keyed = len(subjects) > 1
    rows = files_frame(session, subjects[0].schema, files, lake, key=TASK if keyed else None)
    sums = {number: check for number, check in checks.items() if check.kind != "sql"}
    found: Violations = {(index, number): (0, "") for index in range(len(subjects)) for number in sums}
    if sums:
        columns = [_sum(check, rows).alias(f"c{number}") for number, check in sums.items()]
        grouped = rows.groupBy(*([TASK] if keyed else [])).agg(*columns)
        for row in grouped.collect():
            for number, check in sums.items():
                index = row[TASK] if keyed else 0
                found[index, number] = _summed(check, row[f"c{number}"], subjects[index], now)
    for number, check in checks.items():
        if check.kind == "sql":
            found |= _by_query(session, number, check, subjects, rows, lake)
    return found


def _summed(check: Check, value: int | None, subject: Subject, now: datetime) -> tuple[int, str]:
    if check.kind != "freshness":
        return counted(value or 0, _WORDS[check.kind])
    told = fresh(check, sum(entry.rows for entry in subject.of(check)), value, now)
    return told or (1, f"no row has a time in {check.columns[0]!r}")


def _by_query(
    session: SparkSession, number: int, check: Check, subjects: Sequence[Subject], rows: DataFrame, lake: Lake
) -> Violations:
    sql = check.sql or ""
    one_query(sql)
    if len(subjects) == 1:
        return {(0, number): counted(_rows_of(session, rows, sql), _WORDS["sql"])}
    try:
        carried = carry(sql, [RELATION], [], TASK)
    except NotSeparable:
        carried = None
    if carried is not None and not carried.always_answers:
        rows.createOrReplaceTempView(RELATION)
        counts = {row[TASK]: row["count"] for row in session.sql(carried.sql).groupBy(TASK).count().collect()}
        return {(index, number): counted(counts.get(index, 0), _WORDS["sql"]) for index in range(len(subjects))}
    found = {}
    for index, subject in enumerate(subjects):
        alone = files_frame(session, subject.schema, [(entry, 0) for entry in subject.of(check)], lake)
        found[index, number] = counted(_rows_of(session, alone, sql), _WORDS["sql"])
    return found


def _rows_of(session: SparkSession, rows: DataFrame, sql: str) -> int:
    rows.createOrReplaceTempView(RELATION)
    return session.sql(sql).count()


_WORDS: Final = {
    "not_null": "rows are null",
    "unique": "rows have a key that another row has",
    "range": "rows are out of range",
    "set": "rows have a value that is not allowed",
    "sql": "rows were returned by the query",
}


def _sum(check: Check, rows: DataFrame) -> Column:
    columns = [rows[f"`{name}`"] for name in check.columns]
    match check.kind:
        case "not_null":
            return F.count_if(_any(column.isNull() for column in columns))
        case "unique":
            return F.count("*") - F.count_distinct(F.struct(*columns))
        case "range":
            return F.count_if(_any(_outside(check, column) for column in columns))
        case "set":
            allowed = [F.lit(value) for value in check.values]
            return F.count_if(_any(column.isNotNull() & ~column.isin(allowed) for column in columns))
        case _:
            return F.max(F.unix_micros(columns[0].cast("timestamp")))


def _outside(check: Check, column: Column) -> Column:
    tests = []
    if check.min is not None:
        tests.append(column < F.lit(check.min))
    if check.max is not None:
        tests.append(column > F.lit(check.max))
    return F.coalesce(_any(tests), F.lit(col=False))


def _any(tests: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one | other, tests)


def _result(check: Check, violations: int, detail: str) -> CheckResult:
    return CheckResult(
        label=check.label,
        passed=not violations,
        severity=check.severity,
        violations=violations,
        detail=detail,
        output=check.output,
    )


def _refuse_unknown_columns(check: Check, subjects: Sequence[Subject]) -> None:
    held = {one.name for one in subjects[0].schema}
    for name in check.columns:
        if name not in held:
            raise InputError(f"check {check.label} names the column {name!r}; there are only {', '.join(sorted(held))}")
