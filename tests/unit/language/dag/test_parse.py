"""A DAG is read strictly: every problem at once, each with its place and what to write instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.language.dag.writing import UP, codes, dag

from noetl.errors import InputError
from noetl.language.dag.parse import DagInvalid, is_dag, parse, problems_of

WRONG = """name: hello
max_queue_depth: 4
jobs:
  - name: a
    inputs: [b, b]
    runtim: x
    sql: |
      SELECT id
      FROM numbers
    partition_by: idd
  - name: b
    inputs: {a: a.3}
    file: q/x.sql
    checks: [{kind: range}]
publish: {x: c}
"""


def test_everything_that_is_wrong_is_told_at_once_with_its_place_and_what_to_write() -> None:
    found = problems_of(WRONG, file="demo/dag.yaml", files={"q/x.sql": b"SELECT a.id,\n  b.id\nFROM a, bb"})
    assert [str(problem) for problem in found] == [
        "demo/dag.yaml:2:1: error reserved_field: max_queue_depth is reserved for later"
        " (remove it; scaling.max_concurrency bounds how many tasks run at once)",
        "demo/dag.yaml:4:11: error cycle: the jobs wait for each other: b → a → b (let one of them read something else)",
        "demo/dag.yaml:5:14: warning unread_input: the input b of a is never read (the SELECT does not name it)",
        "demo/dag.yaml:5:17: error duplicate_alias: the job a has two inputs called b (give one of them another alias)",
        "demo/dag.yaml:5:17: warning unread_input: the input b of a is never read (the SELECT does not name it)",
        "demo/dag.yaml:6:5: error unknown_field: jobs[a].runtim is not a field of the job (did you mean runtime?)",
        "demo/dag.yaml:9:1: error unknown_table: the SQL of a reads numbers, which is no input (known: b)",
        "demo/dag.yaml:10:19: error unknown_column: partition_by names idd, which is no column of a (did you mean id?)",
        "demo/dag.yaml:12:17: error unknown_output: a has 1 output, and output 3 is asked for (outputs are counted from 0)",
        "demo/dag.yaml:14:14: error missing_field: the check range needs columns (write columns: …)",
        "demo/dag.yaml:14:14: error missing_field: the check range needs min or max (write min: …)",
        "demo/dag.yaml:15:14: error unknown_job: there is no job c (known: a, b)",
        "demo/q/x.sql:3:9: error unknown_table: the SQL of b reads bb, which is no input (known: a)",
    ]


def test_the_refusal_carries_every_problem() -> None:
    with pytest.raises(DagInvalid) as caught:
        parse(WRONG)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "dag_invalid"
    assert len(caught.value.details["problems"]) == len(caught.value.message.splitlines())  # type: ignore[arg-type]
    assert caught.value.message.startswith("line 2, column 1: error reserved_field")


def test_places_are_those_of_what_was_written() -> None:
    text = 'name: x\njobs:\n  - name: a\n    sql: SELECT 1 AS i\n  - name: b\n    inputs: {q: a}\n    sql: "SELECT i FROM q"\n'
    parsed = parse(text)
    place = parsed.place("jobs", "b", "config", "sql")
    assert (place.line, place.column) == (7, 5)
    assert parsed.place("jobs", "b", "inputs", 0, "alias").line == 6
    assert parsed.place("jobs", "nothing").line == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing in this file"),
        ("- 1\n", "the DAG must be a mapping, not a list"),
        ("a: 1\n---\nb: 2\n", "a file holds one DAG"),
        ("a: [", "this is not valid YAML"),
        ("x" * 1_000_001, "the DAG has 1000001 characters"),
    ],
)
def test_a_file_that_is_no_dag_at_all_is_refused(text: str, said: str) -> None:
    assert said in problems_of(text)[0].message


def test_a_cycle_is_told_as_a_path_and_each_one_once() -> None:
    jobs = [{"name": name, "inputs": [up], "sql": f"SELECT 1 AS a FROM {up}"} for name, up in
            [("a", "c"), ("b", "a"), ("c", "b"), ("d", "d"), ("e", "a")]]  # fmt: skip
    found = [problem.message for problem in problems_of(dag(*jobs))]
    assert found == ["the jobs wait for each other: b → c → a → b", "the job d reads its own output"]


def test_a_cycle_through_a_published_dataset_is_a_cycle() -> None:
    jobs = [{"name": "a", "inputs": ["b_out"], "sql": "SELECT 1 AS a FROM b_out"},
            {"name": "b", "inputs": ["a"], "sql": "SELECT 1 AS a FROM a"}]  # fmt: skip
    assert codes(dag(*jobs, publish={"b_out": "b"})) == ["cycle"]


def test_what_the_dag_publishes_is_read_from_its_job() -> None:
    reader = {"name": "it", "inputs": ["ups"], "sql": "SELECT id FROM ups"}
    (one,) = parse(dag(reader, publish={"ups": "up"})).dag.job("it").inputs
    assert (one.alias, one.source.job, one.source.dataset) == ("ups", "up", None)


def test_a_name_near_a_job_is_read_as_a_dataset_with_a_warning() -> None:
    (problem,) = problems_of(json.dumps({"name": "x", "jobs": [
        {"name": "orders", "sql": "SELECT 1 AS a"}, {"name": "it", "inputs": ["ordrs"], "sql": "SELECT * FROM ordrs"},
    ]}))  # fmt: skip
    assert (problem.severity, problem.code) == ("warning", "likely_misspelt")
    assert problem.suggestion == "did you mean orders? write from: {dataset: ordrs} if not"


def test_a_job_name_stands_once() -> None:
    assert codes(dag(UP)) == ["duplicate_job"]


def test_aliases_differ_in_more_than_case() -> None:
    inputs = [{"from": "up", "alias": "A"}, {"from": "up", "alias": "a"}]
    assert codes(dag({"name": "it", "inputs": inputs, "sql": "SELECT 1 AS x FROM a"})) == ["duplicate_alias"]


def test_the_number_of_outputs_has_a_bound() -> None:
    jobs = [{"name": f"j{n}", "function": "a:b", "outputs": 100} for n in range(4)]
    assert codes(dag(*jobs)) == ["too_large"]
    assert codes(dag(*jobs[:3])) == []


def test_a_secret_in_a_wrong_value_is_not_repeated() -> None:
    found = problems_of(dag({"name": "it", "sql": "SELECT 'hunter2' 'hunter2", "timeout_seconds": "hunter2"}))
    assert len(found) >= 2
    assert "hunter2" not in "".join(map(str, found))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("kind: DAG\n", True),
        ("name: x\njobs: []\n", True),
        ('{"jobs": []}', True),
        ("jobs: [\n", True),
        ("kind: Playbook\njobs: []\n", False),
        ("kind: Playbook\nworkflow: []\n", False),
        ("workflow: [\n", False),
        ("", False),
    ],
)
def test_a_dag_is_told_from_a_playbook(text: str, meant: bool) -> None:
    assert is_dag(text) is meant


_PARTS = st.sampled_from(
    ["name: x\n", "jobs:\n", "  - name: a\n", "  - name: b\n", "    inputs: [a]\n", "    inputs: {q: b.1}\n", "    sql: SELECT * FROM a\n",
     "    sql: SELECT 1 AS x; DROP\n", "    checks: [{kind: range, columns: x}]\n", "    checks: 5\n", "    schema: {columns: {a: 'map<int'}}\n",
     "    config: {sql: 5, file: []}\n", "    function: a:b\n", "    udf: 1\n", "publish: [a, 1]\n", "publish: {a: {from: {job: 5}}}\n",
     "    partition_by: [1, {}]\n", "    source: {kind: cron, schedule: 5}\n", "    inputs: [{from: {output: x}}, 7, {from: 9}]\n", "    name: 5\n",
     "defaults: 5\n", "defaults: {spark: 1}\n", "    scaling: 1\n", "    operator: [x]\n", "    unique_key: {a: 1}\n", "    where: 1\n", "- ", "{", "*x", "\n",
     "    operator: quality_check\n", "    checks: [1, {columns: 7}]\n", "    bootstrap: 1\n", "    activation: manual\n"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=40), st.lists(_PARTS, max_size=16).map("".join)))
def test_no_text_makes_the_parser_fail_in_any_other_way(text: str) -> None:
    files = {"a.py": b"def b(): pass", "x.sql": b"\xff"}
    refusal = None
    try:
        parse(text, files=files)
    except DagInvalid as error:
        refusal = error
    assert refusal is None or (refusal.details["problems"] and refusal.message)
