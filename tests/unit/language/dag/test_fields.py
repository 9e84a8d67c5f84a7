"""Every field of a DAG: an example that is taken, with what becomes of it, and one that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.language.dag.writing import UP, codes, dag, job_of, said_of

from noetl.language.dag.grammar import DAG, JOB
from noetl.language.dag.model import Check, Column, From, Input, Schema, Source, Udf
from noetl.language.dag.parse import DagInvalid, parse
from noetl.language.dag.rules.columns import NEEDS

READS = {"inputs": ["up"], "sql": "SELECT id, day FROM up"}
TAKEN: list[tuple[str, dict[str, Any], str, Any]] = [
    ("name", {"sql": "SELECT 1 AS a"}, "name", "it"),
    ("desc", {"sql": "SELECT 1 AS a", "desc": "One."}, "operator", "spark_sql"),
    ("activation", {"sql": "SELECT 1 AS a", "activation": "source"}, "activation", "source"),
    ("activation", READS, "activation", "reactive"),
    ("runtime", {"sql": "SELECT 1 AS a", "runtime": "ecs_platform"}, "runtime", "ecs_platform"),
    ("runtime", {"playbook": "p.yaml"}, "runtime", "dispatcher"),
    ("operator", {"operator": "compact", "inputs": ["up"]}, "runtime", "spark"),
    ("operator", {"operator": "resize", "runtime": "lambda", "config": {"function": "resize-images"}}, "operator", "resize"),
    ("outputs", {"function": "m:f", "outputs": 2}, "outputs", 2),
    ("outputs", {"operator": "quality_check", "inputs": ["up"], "checks": [{"kind": "row_count", "min": 1}]}, "outputs", 0),
    ("inputs", READS, "inputs", (Input(source=From(job="up"), alias="up"),)),
    ("inputs", {"inputs": {"o": "up.0"}, "sql": "SELECT id FROM o"}, "inputs", (Input(source=From(job="up"), alias="o"),)),
    ("inputs", {"inputs": ["shared"], "sql": "SELECT id FROM shared"}, "inputs", (Input(source=From(dataset="shared"), alias="shared"),)),
    ("inputs", {"inputs": [{"from": {"dataset": "shared"}, "alias": "s", "where": {"a": [1, "x"]}}, {"from": {"job": "up", "output": 0}, "trigger": False}],
                "sql": "SELECT id FROM s, up"}, "inputs",
     (Input(source=From(dataset="shared"), alias="s", where={"a": [1, "x"]}), Input(source=From(job="up"), alias="up", trigger=False))),
    ("inputs", {"inputs": {"s": {"from": "up", "where": {"a": None}}}, "sql": "SELECT id FROM s"}, "inputs",
     (Input(source=From(job="up"), alias="s", where={"a": None}),)),
    ("wait", READS | {"wait": "all"}, "wait", "all"),
    ("partition_by", READS | {"partition_by": "day"}, "partition_by", ("day",)),
    ("partition_by", READS | {"partition_by": ["day", "id"]}, "partition_by", ("day", "id")),
    ("execution_strategy", READS, "execution_strategy", "PerPartition"),
    ("execution_strategy", READS | {"execution_strategy": "PerUpdate"}, "execution_strategy", "PerUpdate"),
    ("execution_strategy", {"sql": "SELECT 1 AS a"}, "execution_strategy", None),
    ("update_strategy", READS, "update_strategy", "replace"),
    ("update_strategy", READS | {"unique_key": ["id"]}, "update_strategy", "append"),
    ("unique_key", READS | {"unique_key": "id", "update_strategy": "append"}, "unique_key", ("id",)),
    ("source", {"sql": "SELECT 1 AS a"}, "source", Source()),
    ("source", {"sql": "SELECT 1 AS a", "source": {"kind": "cron", "schedule": "10 * * * *"}}, "source", Source(kind="cron", schedule="10 * * * *")),
    ("source", {"sql": "SELECT 1 AS a", "source": {"kind": "cron", "schedule": "0 6 * * *", "timezone": "Asia/Tokyo", "catch_up": "every_plan"}}, "source", Source(kind="cron", schedule="0 6 * * *", timezone="Asia/Tokyo", catch_up="every_plan")),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "shop"}}, "source",
     Source(kind="webhook", webhook_path="/in", secret="shop")),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/a/b.c", "signature": "none"}}, "operator", "webhook"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "s", "signature": "github"}, "config": {"delivery": True},
                "schema": {"columns": {"id": "int"}}, "unique_key": ["_delivery", "_row"]}, "schema",
     Schema(columns=(Column("id", "int"), Column("_delivery", "string", nullable=False), Column("_row", "bigint", nullable=False),
                     Column("_received_at", "timestamp", nullable=False)))),
    ("source", {"sql": "SELECT 1 AS a", "source": {"kind": "always_on"}}, "source", Source(kind="always_on")),
    ("source", {"sql": "SELECT 1 AS a", "source": {"kind": "always_on", "every": "30s"}}, "source", Source(kind="always_on", every="30s")),
    ("source", {"sql": "SELECT 1 AS a", "source": {"kind": "always_on"}}, "max_concurrency", 1),
    ("bootstrap", {"sql": "SELECT 1 AS a", "bootstrap": {"reset_outputs": True}}, "reset_outputs", True),
    ("secrets", {"sql": "SELECT 1 AS a", "secrets": ["crm/token"]}, "secrets", ("crm/token",)),
    ("idle_timeout", READS | {"idle_timeout": "5m"}, "idle_timeout", "5m"),
    ("idle_timeout", READS | {"idle_timeout": 0}, "idle_timeout", "0"),
    ("scaling", READS | {"scaling": {"max_concurrency": 8}}, "max_concurrency", 8),
    ("timeout_seconds", READS | {"timeout_seconds": 1.5}, "timeout_seconds", 1.5),
    ("heartbeat_timeout_seconds", READS | {"heartbeat_timeout_seconds": 90}, "heartbeat_timeout_seconds", 90),
    ("max_attempts", READS, "max_attempts", 3),
    ("max_attempts", READS | {"max_attempts": 1}, "max_attempts", 1),
    ("checks", READS | {"checks": [{"kind": "not_null", "columns": "id", "severity": "warn"}]}, "checks",
     (Check(kind="not_null", columns=("id",), severity="warn"),)),
    ("schema", READS | {"schema": {"columns": {"id": "long not null", "day": "STRING"}, "evolve": "widen"}}, "schema",
     Schema(columns=(Column("id", "bigint", nullable=False), Column("day", "string")), evolve="widen")),
    ("schema", READS | {"schema": {"columns": [{"name": "id", "type": "int", "nullable": False}]}}, "schema",
     Schema(columns=(Column("id", "int", nullable=False),))),
    ("spark", READS | {"spark": {"spark.sql.shuffle.partitions": 8, "spark.a": True, "spark.b": -1}}, "spark",
     {"spark.sql.shuffle.partitions": "8", "spark.a": "true", "spark.b": "-1"}),
    ("activation", {"activation": "source", "inputs": [{"from": {"dataset": "d"}}], "sql": "SELECT * FROM d"}, "inputs",
     (Input(source=From(dataset="d"), alias="d", trigger=False),)),
    ("udf", {"udf": {"entrypoint": "main.py"}}, "udf", Udf(entrypoint="main.py")),
    ("udf", {"udf": {"entrypoint": "main.py", "bundle_id": "b"}}, "runtime", "ecs_udf"),
    ("config", {"config": {"sql": "SELECT 1 AS a"}}, "operator", "spark_sql"),
    ("config", {"operator": "quality_check", "inputs": ["up"], "config": {"checks": [{"kind": "unique", "columns": "id"}]}}, "config",
     {"checks": [{"kind": "unique", "columns": ["id"]}]}),
    ("sql", {"sql": "SELECT 1 AS a"}, "config", {"sql": "SELECT 1 AS a"}),
    ("file", {"file": "q/it.sql"}, "config", {"file": "q/it.sql"}),
    ("function", {"function": "a.b:c"}, "operator", "pyspark"),
    ("script", {"script": "it.py"}, "operator", "pyspark"),
    ("playbook", {"playbook": "p.yaml"}, "config", {"playbook": "p.yaml"}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "fields", "fact", "value"), TAKEN)
def test_a_field_is_taken(field: str, fields: dict[str, Any], fact: str, value: object) -> None:
    assert getattr(job_of(**fields), fact) == value


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("name", {"name": "a b"}, "wrong_value"),
    ("desc", {"desc": 5}, "wrong_value"),
    ("activation", {"activation": "manual"}, "reserved_field"),
    ("activation", {"activation": "source", **READS}, "wrong_value"),
    ("activation", {"activation": "source", "inputs": [{"from": {"dataset": "d"}, "trigger": True}], "sql": "SELECT * FROM d"}, "wrong_value"),
    ("activation", {"activation": "reactive"}, "missing_field"),
    ("runtime", {"runtime": "sparc"}, "wrong_value"),
    ("runtime", {"runtime": "dispatcher"}, "wrong_runtime"),
    ("runtime", {"runtime": "ecs_udf"}, "wrong_runtime"),
    ("operator", {"operator": "spark_sq"}, "unknown_operator"),
    ("outputs", {"outputs": -1}, "wrong_value"),
    ("outputs", {"outputs": 2}, "wrong_value"),
    ("inputs", {"inputs": []}, "wrong_value"),
    ("inputs", {"inputs": "up"}, "wrong_value"),
    ("inputs", {"inputs": [{"from": {"job": "up", "dataset": "d"}, "alias": "up"}], "sql": "SELECT * FROM up"}, "wrong_value"),
    ("inputs", {"inputs": [{"from": {}, "alias": "up"}], "sql": "SELECT * FROM up"}, "wrong_value"),
    ("inputs", {"inputs": [{"from": {"dataset": "d", "output": 1}}], "sql": "SELECT * FROM d"}, "misplaced_field"),
    ("inputs", {"inputs": [{"from": {"job": "up", "output": 1}}], "sql": "SELECT * FROM up"}, "unknown_output"),
    ("inputs", {"inputs": ["Up"], "sql": "SELECT * FROM up"}, "unknown_job"),
    ("inputs", {"inputs": ["up.1"], "sql": "SELECT * FROM up"}, "unknown_output"),
    ("inputs", {"inputs": [{"from": "up", "when": 1}], "sql": "SELECT * FROM up"}, "unknown_field"),
    ("inputs", {"inputs": [{"from": "up", "trigger": "no"}], "sql": "SELECT * FROM up"}, "wrong_value"),
    ("inputs", {"inputs": [{"from": "up", "trigger": False}], "sql": "SELECT * FROM up"}, "never_started"),
    ("inputs", {"inputs": [{"from": "up", "where": {"a": {"b": 1}}}], "sql": "SELECT * FROM up"}, "wrong_value"),
    ("inputs", {"inputs": {"a b": "up"}, "sql": "SELECT * FROM `a b`"}, "wrong_value"),
    ("wait", {"wait": "any"}, "misplaced_field"),
    ("wait", READS | {"wait": "both"}, "wrong_value"),
    ("partition_by", READS | {"partition_by": ["day", "DAY"]}, "duplicate_column"),
    ("partition_by", READS | {"partition_by": ["dya"]}, "unknown_column"),
    ("partition_by", READS | {"partition_by": ["a/b"]}, "wrong_value"),
    ("execution_strategy", {"execution_strategy": "PerUpdate"}, "misplaced_field"),
    ("execution_strategy", READS | {"execution_strategy": "Bulk"}, "wrong_value"),
    ("update_strategy", {"update_strategy": "append"}, "missing_field"),
    ("unique_key", {"update_strategy": "replace", "unique_key": ["a"]}, "misplaced_field"),
    ("unique_key", {"unique_key": ["b"]}, "unknown_column"),
    ("source", READS | {"source": {"kind": "manual"}}, "misplaced_field"),
    ("source", {"source": {"kind": "cron"}}, "missing_field"),
    ("source", {"source": {"kind": "cron", "schedule": "0 0 30 2 *"}}, "wrong_value"),
    ("source", {"source": {"kind": "cron", "schedule": "0 6 * * *", "timezone": "Moon"}}, "wrong_value"),
    ("source", {"source": {"kind": "cron", "schedule": "rate(1 day)", "timezone": "Asia/Tokyo"}}, "wrong_value"),
    ("source", {"source": {"kind": "cron", "schedule": "0 6 * * *", "catch_up": "some"}}, "wrong_value"),
    ("source", {"source": {"kind": "manual", "timezone": "UTC"}}, "misplaced_field"),
    ("source", {"source": {"kind": "cron", "schedule": "every day"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook"}}, "missing_field"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "in"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/a//b", "secret": "s"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/../b", "secret": "s"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in"}, "sql": None}, "missing_field"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "s"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "s", "signature": "none"}}, "misplaced_field"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "s", "signature": "md5"}}, "wrong_value"),
    ("source", {"source": {"kind": "webhook", "webhook_path": "/in", "secret": "s", "every": "1s"}}, "misplaced_field"),
    ("source", {"activation": "source", "operator": "webhook", "inputs": [{"from": {"dataset": "d"}}],
                "source": {"kind": "webhook", "webhook_path": "/in", "secret": "s"}}, "misplaced_field"),
    ("source", {"source": {"kind": "always_on", "schedule": "* * * * *"}}, "misplaced_field"),
    ("source", {"source": {"kind": "always_on", "secret": "s"}}, "misplaced_field"),
    ("source", {"source": {"kind": "always_on", "every": "soon"}}, "wrong_value"),
    ("source", {"source": {"kind": "always_on", "every": "1ms"}}, "wrong_value"),
    ("source", {"source": {"kind": "always_on"}, "scaling": {"max_concurrency": 2}}, "wrong_value"),
    ("source", {"operator": "webhook"}, "missing_field"),
    ("source", {"source": {"kind": "manual", "schedule": "* * * * *"}}, "misplaced_field"),
    ("bootstrap", READS | {"bootstrap": {"reset_outputs": True}}, "misplaced_field"),
    ("bootstrap", {"bootstrap": {"reset": True}}, "unknown_field"),
    ("secrets", {"secrets": "token"}, "wrong_value"),
    ("idle_timeout", READS | {"idle_timeout": "soon"}, "wrong_value"),
    ("idle_timeout", {"idle_timeout": "never"}, "misplaced_field"),
    ("scaling", {"scaling": {"max_concurrency": 0}}, "wrong_value"),
    ("scaling", {"scaling": {"max_queue_depth": 5}}, "reserved_field"),
    ("timeout_seconds", {"timeout_seconds": 0}, "wrong_value"),
    ("heartbeat_timeout_seconds", {"heartbeat_timeout_seconds": "90s"}, "wrong_value"),
    ("max_attempts", {"max_attempts": 0}, "wrong_value"),
    ("checks", {"checks": [{"kind": "no_null"}]}, "wrong_value"),
    ("schema", {"schema": {"columns": {"a": "bigit"}}}, "unknown_type"),
    ("schema", {"schema": {"columns": {"a": "int", "A": "int"}}}, "duplicate_column"),
    ("schema", {"schema": {"columns": {"b": "int"}}}, "unknown_column"),
    ("schema", {"schema": {"evolve": "maybe"}}, "wrong_value"),
    ("spark", {"spark": {"shuffle": 8}}, "wrong_value"),
    ("udf", {"udf": {"bundle_id": "b"}}, "missing_field"),
    ("udf", {"udf": {"entrypoint": "x.py"}}, "misplaced_field"),
    ("config", {"config": {"sql": "SELECT 2 AS b"}}, "given_twice"),
    ("config", {"config": {"functions": 1, "function": "a:b"}}, "misplaced_field"),
    ("config", {"config": 5}, "wrong_value"),
    ("sql", {"sql": ""}, "wrong_value"),
    ("sql", {"sql": "SELECT FROM FROM"}, "sql_invalid"),
    ("file", {"file": "../secret.sql"}, "wrong_value"),
    ("file", {"file": "/etc/x.sql"}, "wrong_value"),
    ("file", {"file": "it.sql"}, "given_twice"),
    ("function", {"function": "a.b"}, "wrong_value"),
    ("script", {"script": "a\\b.py"}, "wrong_value"),
    ("playbook", {"playbook": "a/../b.yaml"}, "wrong_value"),
    ("max_queue_depth", {"max_queue_depth": 1}, "reserved_field"),
    ("max_queue_age", {"max_queue_age": 1}, "reserved_field"),
    ("backpressure_mode", {"backpressure_mode": "pause"}, "reserved_field"),
    ("max_concurrency", {"max_concurrency": 1}, "misplaced_field"),
    ("nonsense", {"nonsense": 1}, "unknown_field"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "fields", "code"), REFUSED)
def test_a_field_is_refused(field: str, fields: dict[str, Any], code: str) -> None:
    assert code in codes(dag({"name": "it", "sql": "SELECT 1 AS a", **fields}))
    with pytest.raises(DagInvalid):
        parse(dag({"name": "it", "sql": "SELECT 1 AS a", **fields}))


def test_every_field_of_a_job_has_an_example_of_both_kinds() -> None:
    assert {field for field, *_ in TAKEN} == set(JOB.fields)
    assert set(JOB.fields) <= {field for field, *_ in REFUSED}


CHECKS: list[tuple[dict[str, Any], str | None]] = [
    ({"kind": "not_null", "columns": ["id"]}, None),
    ({"kind": "not_null"}, "missing_field"),
    ({"kind": "unique", "columns": ["id", "day"]}, None),
    ({"kind": "unique", "columns": ["idd"]}, "unknown_column"),
    ({"kind": "range", "columns": ["id"], "min": 0}, None),
    ({"kind": "range", "columns": ["id"], "max": "2026-01-01"}, None),
    ({"kind": "range", "columns": ["id"]}, "missing_field"),
    ({"kind": "range", "columns": ["id"], "min": 2, "max": 1}, "wrong_value"),
    ({"kind": "range", "columns": ["id"], "min": 2, "max": "b"}, "wrong_value"),
    ({"kind": "range", "columns": ["id"], "min": [2]}, "wrong_value"),
    ({"kind": "set", "columns": "day", "values": ["x", None]}, None),
    ({"kind": "set", "columns": "day"}, "missing_field"),
    ({"kind": "row_count", "min": 1, "max": 5}, None),
    ({"kind": "row_count", "min": 0.5}, "wrong_value"),
    ({"kind": "row_count"}, "missing_field"),
    ({"kind": "row_count", "min": 1, "columns": "id"}, "misplaced_field"),
    ({"kind": "freshness", "columns": "day", "max_age_seconds": 60}, None),
    ({"kind": "freshness", "columns": "day"}, "missing_field"),
    ({"kind": "freshness", "columns": ["day", "id"], "max_age_seconds": 60}, "wrong_value"),
    ({"kind": "sql", "sql": "SELECT * FROM output WHERE id < 0"}, None),
    ({"kind": "sql", "sql": "SELECT * FROM up"}, "unknown_table"),
    ({"kind": "sql", "sql": "DELETE FROM output"}, "sql_invalid"),
    ({"kind": "sql"}, "missing_field"),
    ({"kind": "not_null", "columns": ["id"], "output": 0, "severity": "block"}, None),
    ({"kind": "not_null", "columns": ["id"], "output": 1}, "unknown_output"),
    ({"kind": "not_null", "columns": ["id"], "severity": "shout"}, "wrong_value"),
]


@pytest.mark.parametrize(("check", "code"), CHECKS)
def test_a_check_has_what_its_kind_needs(check: dict[str, Any], code: str | None) -> None:
    found = codes(dag({"name": "it", **READS, "checks": [check]}))
    assert found == ([] if code is None else [code])


def test_every_kind_of_check_has_an_example() -> None:
    assert {check["kind"] for check, code in CHECKS if code is None} == set(NEEDS)


@pytest.mark.parametrize(
    ("top", "code"),
    [
        ({"apiVersion": "noetl.io/v2", "kind": "DAG", "desc": "x"}, None),
        ({"apiVersion": "noetl.io/v9"}, "wrong_value"),
        ({"kind": "Dag"}, "wrong_value"),
        ({"name": "a.b"}, "wrong_value"),
        ({"desc": []}, "wrong_value"),
        ({"defaults": {"max_attempts": 5, "spark": {"spark.a": "b"}}}, None),
        ({"defaults": {"priority": 5}}, "reserved_field"),
        ({"defaults": {"inputs": ["up"]}}, "unknown_field"),
        ({"max_queue_depth": 5}, "reserved_field"),
        ({"jobs": []}, "wrong_value"),
        ({"jobs": {}}, "wrong_value"),
        ({"publish": ["up"]}, None),
        ({"publish": {"all_up": "up.0"}}, None),
        ({"publish": {"all_up": {"from": {"job": "up", "output": 0}}}}, None),
        ({"publish": {"all_up": {"from": "up"}}}, None),
        ({"publish": ["up", "up"]}, "duplicate_name"),
        ({"publish": {"Up": "up"}}, "wrong_value"),
        ({"publish": {"x" * 129: "up"}}, "wrong_value"),
        ({"publish": {"all_up": "down"}}, "unknown_job"),
        ({"publish": {"all_up": "up.1"}}, "unknown_output"),
        ({"publish": {"a": "up", "b": "up"}}, "duplicate_publish"),
        ({"publish": {"a": {"from": {"dataset": "x"}}}}, "wrong_value"),
        ({"publish": {"a": {"from": "up", "storage": "s3"}}}, "reserved_field"),
        ({"publish": {"a": {"from": "up", "write_mode": "x"}}}, "reserved_field"),
        ({"publish": {"a": {"from": "up", "schema": {}}}}, "reserved_field"),
        ({"steps": []}, "unknown_field"),
    ],
)
def test_the_fields_at_the_top(top: dict[str, Any], code: str | None) -> None:
    assert codes(dag(**top)) == ([] if code is None else [code])


def test_the_top_has_an_example_for_every_field() -> None:
    assert set(DAG.fields) == {"apiVersion", "kind", "name", "desc", "defaults", "jobs", "publish"}


def test_defaults_hold_for_jobs_that_do_not_say_otherwise() -> None:
    defaults = {"max_attempts": 5, "timeout_seconds": 9, "scaling": {"max_concurrency": 2}, "spark": {"spark.a": "1"}}
    text = dag({"name": "it", "sql": "SELECT 1 AS a", "max_attempts": 1, "spark": {"spark.b": 2}}, defaults=defaults)
    up, it = parse(text).dag.jobs
    assert (up.max_attempts, up.timeout_seconds, up.max_concurrency, up.spark) == (5, 9, 2, {"spark.a": "1"})
    assert (it.max_attempts, it.timeout_seconds, it.spark) == (1, 9, {"spark.a": "1", "spark.b": "2"})


def test_an_idle_timeout_by_default_leaves_sources_alone() -> None:
    text = dag({"name": "it", **READS}, defaults={"idle_timeout": "never"})
    assert [job.idle_timeout for job in parse(text).dag.jobs] == [None, "never"]


def test_a_dag_of_one_job_fits_in_eight_lines() -> None:
    text = """name: hello
jobs:
  - name: numbers
    sql: SELECT id FROM range(10)
publish: [numbers]
"""
    found = parse(text).dag
    assert found.jobs[0].runtime == "spark"
    assert found.publish == {"numbers": From(job="numbers")}


def test_an_installed_operator_is_taken_with_its_runtime() -> None:
    assert job_of(operators=["fax"], operator="fax", runtime="dispatcher", config={"x": 1}).operator == "fax"
    assert codes(dag({"name": "it", "operator": "fax"}), operators=["fax"]) == ["missing_field"]
    assert codes(dag({"name": "it", "operator": "fax", "runtime": "spark"}), operators=None) == []


def test_user_code_gets_no_secrets() -> None:
    assert said_of(udf={"entrypoint": "x.py"}, secrets=["token"]) == ["secrets_forbidden: user code gets no secrets"]


def test_a_job_must_say_what_it_does() -> None:
    assert said_of() == ["missing_field: the job it does not say what it does"]
    assert said_of(operator="spark_sql") == ["missing_field: spark_sql needs sql or file"]
    assert said_of(operator="compact") == ["wrong_value: compact takes one input"]
    assert said_of(operator="range_splitter", config={"chunk_size": 5}) == [
        "missing_field: range_splitter needs inputs"
    ]


def test_a_function_elsewhere_needs_its_name_or_address() -> None:
    assert job_of(runtime="lambda", config={"url": "http://127.0.0.1/f"}).operator == "invoke"
    assert job_of(files={}, runtime="lambda", config={"function": "arn:aws:lambda:f"}).runtime == "lambda"
    assert said_of(runtime="lambda") == ["missing_field: invoke needs function or url"]
    assert said_of(runtime="lambda", operator="resize") == ["missing_field: invoke needs function or url"]


def test_ranges_are_partitions_by_themselves() -> None:
    fields = {"operator": "range_aggregator", "inputs": ["up"], "config": {"cursor_column": "id", "range_size": 5}}
    assert job_of(**fields).partition_by == ("range",)
    assert said_of(**fields, unique_key="id") == [
        "unknown_column: unique_key names id, which is no column of it",
    ]


def test_a_quality_check_looks_at_whole_partitions() -> None:
    checks = [{"kind": "row_count", "min": 1}]
    inputs = [{"from": "up", "where": {"id": 1}}]
    assert said_of(operator="quality_check", inputs=inputs, checks=checks) == [
        "misplaced_field: quality_check looks at whole partitions"
    ]


@pytest.mark.parametrize("key", ["path", "paths", "patch", "match", "inscript", "retry", "function_name"])
def test_a_key_of_the_functions_own_is_no_misspelling(key: str) -> None:
    parsed = parse(dag({"name": "it", "function": "a:b", "config": {key: "/data/in.csv"}}))
    assert not parsed.warnings
    assert parsed.dag.job("it").config == {key: "/data/in.csv", "function": "a:b"}


def test_a_misspelt_key_of_the_config_is_told_but_kept() -> None:
    text = dag({"name": "it", "function": "a:b", "config": {"bach": True, "rate": 5}})
    parsed = parse(text)
    assert [problem.code for problem in parsed.warnings] == ["likely_misspelt"]
    assert parsed.dag.job("it").config == {"bach": True, "rate": 5, "function": "a:b"}
    assert UP["name"] == parsed.dag.jobs[0].name
