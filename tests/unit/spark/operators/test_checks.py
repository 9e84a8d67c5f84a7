"""Checks: what they find, and that footers alone decide where they can."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noetl.language.dag.model import Check
from noetl.spark.operators.checks import run_checks
from noetl.spark.operators.footer_checks import Subject, proved

SCHEMA = "id bigint;kind string;price double;at timestamp"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROWS = [
    (1, "a", 1.0, NOW - timedelta(hours=1)),
    (2, "b", 9.0, NOW - timedelta(hours=9)),
    (2, None, None, None),
]


def subject(rig, rows, standing=()):
    part = rig.part(SCHEMA, rows)
    old = rig.manifests[rig.part(SCHEMA, standing).manifest.sha256].files if standing else ()
    manifest = rig.manifests[part.manifest.sha256]
    return Subject(schema=manifest.schema, files=manifest.files, standing=old)


CHECKS = [
    (Check(kind="not_null", columns=("id",)), 0),
    (Check(kind="not_null", columns=("id", "kind")), 1),
    (Check(kind="unique", columns=("id",)), 1),
    (Check(kind="unique", columns=("id", "kind")), 0),
    (Check(kind="range", columns=("id",), min=1, max=2), 0),
    (Check(kind="range", columns=("id",), min=2), 1),
    (Check(kind="range", columns=("price",), max=5), 1),
    (Check(kind="set", columns=("kind",), values=("a", "b")), 0),
    (Check(kind="set", columns=("kind",), values=("a",)), 1),
    (Check(kind="row_count", min=3, max=3), 0),
    (Check(kind="row_count", min=4), 1),
    (Check(kind="freshness", columns=("at",), max_age_seconds=7200), 0),
    (Check(kind="freshness", columns=("at",), max_age_seconds=60), 1),
    (Check(kind="sql", sql="SELECT * FROM output WHERE id > 1"), 2),
]


def test_checks_count_what_breaks_them(rig):
    checks = [check for check, _ in CHECKS]
    (results,) = run_checks(rig.session, checks, [subject(rig, ROWS)], rig.lake, NOW)
    assert [(one.label, one.violations) for one in results] == [(check.label, count) for check, count in CHECKS]
    assert all(one.passed == (not one.violations) and bool(one.detail) != one.passed for one in results)


def test_several_subjects_are_counted_apart(rig):
    checks = [check for check, _ in CHECKS]
    subjects = [subject(rig, ROWS), subject(rig, [(5, "c", 5.0, NOW)])]
    results = run_checks(rig.session, checks, subjects, rig.lake, NOW)
    assert [one.violations for one in results[0]] == [count for _, count in CHECKS]
    assert [one.violations for one in results[1]] == [0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("check", "known"),
    [
        (Check(kind="not_null", columns=("kind",)), 1),
        (Check(kind="range", columns=("id",), min=0, max=9), 0),
        (Check(kind="range", columns=("id",), min=2), None),
        (Check(kind="range", columns=("price",), max=100), None),
        (Check(kind="freshness", columns=("at",), max_age_seconds=60), 1),
        (Check(kind="row_count", max=2), 1),
        (Check(kind="unique", columns=("id",)), None),
    ],
)
def test_footers_tell_what_they_prove_and_no_more(rig, check, known):
    told = proved(check, subject(rig, ROWS), NOW)
    assert (told[0] if told else None) == known


def test_promises_about_a_partition_count_the_rows_that_stand(rig):
    checks = [
        Check(kind="unique", columns=("id",)),
        Check(kind="row_count", min=2),
        Check(kind="not_null", columns=("kind",)),
    ]
    one = subject(rig, [(1, "a", 1.0, NOW)], standing=[(1, None, 2.0, NOW)])
    (results,) = run_checks(rig.session, checks, [one], rig.lake, NOW)
    assert [one.violations for one in results] == [1, 0, 0]


def test_no_rows_break_only_what_asks_for_rows(rig):
    checks = [check for check, _ in CHECKS]
    empty = Subject(schema=subject(rig, ROWS).schema, files=())
    (results,) = run_checks(rig.session, checks, [empty], rig.lake, NOW)
    assert [one.label for one in results if not one.passed] == [
        "row_count",
        "row_count",
        "freshness(at)",
        "freshness(at)",
    ]


def test_rows_without_any_time_are_not_fresh(rig):
    (results,) = run_checks(
        rig.session,
        [Check(kind="freshness", columns=("at",), max_age_seconds=60)],
        [subject(rig, [(1, "a", 1.0, None)])],
        rig.lake,
        NOW,
    )
    assert results[0].detail == "no row has a time in 'at'"


def test_a_check_of_an_unknown_column_fails_the_attempt_by_name(rig):
    work = rig.work("spark_sql", {"sql": "SELECT 1 AS one"}, checks=[{"kind": "not_null", "columns": ["two"]}])
    (result,) = rig.run(work)
    assert "names the column 'two'" in result.error


def test_quality_check_reports_without_passing_rows_on(rig):
    given = rig.taking("orders", rig.part(SCHEMA, ROWS))
    config = {"checks": [{"kind": "unique", "columns": ["id"]}, {"kind": "row_count", "min": 1}]}
    (silent,) = rig.ok(rig.work("quality_check", config, [given], []))
    assert (silent.writes, [one.passed for one in silent.checks]) == ((), [False, True])
    (told,) = rig.ok(rig.work("quality_check", config, [given]))
    assert rig.rows(*told.writes) == [
        ("orders", "row_count", True, "block", 0, ""),
        ("orders", "unique(id)", False, "block", 1, "1 rows have a key that another row has"),
    ]
