"""The operators `pyspark` and `compact`, and how failures of user code are told."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from noetl.errors import InputError
from noetl.spark.operators.failures import failure_of

SCHEMA = "id bigint;name string"


@pytest.fixture
def given(rig):
    return rig.taking("people", rig.part(SCHEMA, [(1, "ada"), (2, "bob")], files=2))


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """Writes a file beside the DAG's."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return write


def test_a_function_gets_frames_by_alias_with_session_and_context(rig, given, beside):
    beside(
        "greeting_job.py",
        "from pyspark.sql import functions as F\n"
        "def greet(people, spark, context):\n"
        "    assert context.secrets['token'] == 's3cret' and 's3cret' not in repr(context)\n"
        "    extra = spark.createDataFrame([(9, context.partition['day'])], 'id bigint, name string')\n"
        "    return people.unionAll(extra).withColumn('day', F.lit('d1'))\n",
    )
    target = rig.target(partition_by=("day",))
    (result,) = rig.ok(rig.work("pyspark", {"function": "greeting_job:greet"}, [given], [target], key="day=d1"))
    assert rig.rows(*result.writes) == [(1, "ada", "d1"), (2, "bob", "d1"), (9, "d1", "d1")]


def test_a_script_may_have_any_name_and_return_several_outputs(rig, given, beside):
    beside(
        "jobs/split-people.py",
        "from pyspark.sql.functions import udf\n"
        "@udf('string')\n"
        "def loud(name):\n"
        "    return shout(name)\n"
        "def shout(name):\n"
        "    return name.upper()\n"
        "def run(people):\n"
        "    return people.filter('id = 1').select(loud('name').alias('n')), people.filter('id = 2')\n",
    )
    targets = [rig.target(), rig.target(output=1, location="other/")]
    (result,) = rig.ok(rig.work("pyspark", {"script": "jobs/split-people.py"}, [given], targets))
    assert [rig.rows(write) for write in result.writes] == [[("ADA",)], [(2, "bob")]]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def run(person):\n    return person", "takes no argument 'people'"),
        ("def run(people, town):\n    return people", "needs 'town', which is no input"),
        ("def run(people):\n    return 7", "must return a DataFrame for output 0, not int"),
        ("def run(people):\n    return (people, people)", "has 1 outputs (0)"),
        ("def go(people):\n    return people", "has no function 'run'"),
        (
            "def run(people):\n    raise ValueError('too many towns')",
            "ValueError: too many towns (wrong_job.py, line 2)",
        ),
    ],
)
def test_a_function_that_does_not_fit_is_told_in_one_sentence(rig, given, beside, monkeypatch, body, words):
    beside("wrong_job.py", body)
    monkeypatch.delitem(__import__("sys").modules, "wrong_job", raising=False)
    (result,) = rig.run(rig.work("pyspark", {"function": "wrong_job:run"}, [given]))
    assert words in result.error
    assert (result.status, result.retryable) == ("error", False)


def test_a_module_that_is_not_there_is_named(rig, given):
    (result,) = rig.run(rig.work("pyspark", {"function": "nowhere.at_all:run"}, [given]))
    assert "no module 'nowhere.at_all'" in result.error


def test_a_job_whose_packages_are_not_in_the_driver_is_refused_before_its_code_is_called(rig, given, beside):
    beside("needs_job.py", "def run(people): raise AssertionError('called')")
    beside("needs.txt", "# what it needs\nmsgspec>=0.1  # is here\nno-such-thing>=2 --hash=sha256:00\n-r other.txt\n")
    for told in ("needs.txt", ["msgspec", "no-such-thing>=2"]):
        config = {"function": "needs_job:run", "requirements": told}
        (result,) = rig.run(rig.work("pyspark", config, [given]))
        assert "needs no-such-thing>=2, which is not where the drivers run" in result.error
        assert (result.status, result.retryable) == ("error", False)


def test_an_error_inside_of_an_executor_is_told_by_its_last_line(rig, given, beside):
    beside(
        "broken_udf.py",
        "from pyspark.sql.functions import udf\n"
        "def run(people):\n"
        "    def bad(name):\n"
        "        raise KeyError('no such ' + name)\n"
        "    return people.coalesce(1).select(udf(bad, 'string')('name').alias('n'))\n",
    )
    (result,) = rig.run(rig.work("pyspark", {"function": "broken_udf:run"}, [given]))
    assert "user code in an executor failed: KeyError: 'no such" in result.error
    assert not result.retryable
    assert "Traceback" in result.log


def test_compact_writes_the_same_rows_as_one_file(rig):
    rows = [(n, str(n)) for n in range(20)]
    given = rig.taking("people", rig.part(SCHEMA, rows, files=10))
    (result,) = rig.ok(rig.work("compact", {}, [given]))
    assert len(result.writes[0].files) == 1
    assert sorted(rig.rows(*result.writes)) == rows


def test_compact_refuses_a_size_that_is_none(rig, given):
    (result,) = rig.run(rig.work("compact", {"target_bytes": "big"}, [given]))
    assert "target_bytes" in result.error


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (PySparkException("ExecutorLostFailure (executor 1 exited)"), "PySparkException", True),
        (PySparkException("[FETCH] org.apache.spark.shuffle.FetchFailedException: gone"), "fetch", True),
        (PySparkException("[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 3 pos 4"), "unresolved_column", False),
        (PySparkException("[SPARK_JOB_CANCELLED] Job 1 cancelled"), "interrupted", True),
        (InputError("no"), "input_invalid", False),
        (ConnectionResetError("gone"), "ConnectionResetError", True),
    ],
)
def test_only_what_may_pass_is_tried_again(error, kind, retryable):
    failure = failure_of(error)
    assert (failure.kind, failure.retryable) == (kind, retryable)
    assert failure.interrupted == (kind == "interrupted")


def test_the_line_of_a_query_is_counted_from_one():
    told = failure_of(PySparkException("[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 3 pos 4")).message
    assert told == "no `x`. (line 3, column 5)"


def test_a_function_goes_on_with_what_it_left_in_its_state(rig, beside):
    beside(
        "ticking_job.py",
        "def tick(spark, state, context):\n"
        "    assert context.stopping is False\n"
        "    state['next'] = state.get('next', 1) + 1\n"
        "    return spark.range(state['next'] - 1, state['next'])\n"
        "def look(spark, state):\n"
        "    return spark.range(state.get('next', 0), state.get('next', 0) + 1)\n"
        "def spoil(spark, state):\n"
        "    state['seen'] = {1, 2}\n"
        "    return spark.range(1)\n",
    )

    def run(name, **state):
        return rig.work("pyspark", {"function": f"ticking_job:{name}"}, [], [rig.target()], operator_state=state)

    (first,) = rig.ok(run("tick"))
    assert (rig.rows(*first.writes), first.operator_state) == ([(1,)], {"next": 2})
    (second,) = rig.ok(run("tick", next=7))
    assert (rig.rows(*second.writes), second.operator_state) == ([(7,)], {"next": 8})
    (third,) = rig.ok(run("look", next=8))
    assert (rig.rows(*third.writes), third.operator_state) == ([(8,)], None)
    (spoilt,) = rig.run(run("spoil"))
    assert "the state ticking_job:spoil leaves is no JSON" in spoilt.error
