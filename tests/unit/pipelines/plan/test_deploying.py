"""What a deploy would do, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from noetl.language.dag.model import Column, Dag, From, Input, Job, Schema
from noetl.model.canonical import canonical_json, sha256_hex
from noetl.model.stream import Scope
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.deploy.plan import deploy_plan, registrations, renamings
from noetl.pipelines.plan.deploy.problems import MAX_OUTPUTS
from noetl.pipelines.plan.deploy.reasons import SETTINGS
from noetl.pipelines.plan.deploy.values import (
    BundleFacts,
    DagState,
    DeployPlan,
    StandingDataset,
    StandingJob,
    StandingVersion,
)

SCOPE = Scope("acme", "sales")


def a_job(name: str, *reads: str, sql: str = "SELECT 1", **fields: Any) -> Job:
    inputs = tuple(Input(source=From(job=one), alias=one) for one in reads)
    given = {"activation": "reactive" if reads else "source", "inputs": inputs, "config": {"sql": sql}}
    return Job(name=name, runtime="spark", **{"operator": "spark_sql", **given, **fields})


def facts_of(*jobs: Job, publish: dict[str, str] | None = None, **files: dict[str, str]) -> BundleFacts:
    """Facts about a DAG `shop`; hashes are made as those of bundles are: of all but settings, and of files."""
    dag = Dag(name="shop", jobs=jobs, publish={name: From(job=job) for name, job in (publish or {}).items()})
    hashes = {}
    for job in jobs:
        plain = {name: value for name, value in msgspec.to_builtins(job).items() if name not in SETTINGS}
        hashes[job.name] = sha256_hex(canonical_json([plain, files.get(job.name, {})]))
    digest = sha256_hex(canonical_json([msgspec.to_builtins(dag), files]))
    return BundleFacts(scope=SCOPE, dag=dag, bundle_digest=digest, job_hashes=hashes, files=files)


def activated(facts: BundleFacts, state: DagState | None = None) -> DagState:
    """The state after a plan was carried out and made current."""
    state = state or DagState()
    plan = deploy_plan(facts, state)
    assert plan.problems == ()
    jobs = {
        job.name: StandingJob(
            job=facts.dag.job(job.name),
            job_hash=job.job_hash,
            generation=job.generation,
            files=facts.files.get(job.name, {}),
        )
        for job in plan.jobs
    }
    datasets = {one.dataset_uuid: one for one in state.datasets}
    for given in registrations(plan, state):
        datasets[given.dataset_uuid] = StandingDataset(**msgspec.to_builtins(given))
    for given in renamings("shop", plan.publish, datasets.values()):
        datasets[given.dataset_uuid] = StandingDataset(**msgspec.to_builtins(given))
    return DagState(
        current=StandingVersion(
            dag_version_id=plan.dag_version_id, jobs=jobs, pointers=plan.pointers, publish=plan.publish
        ),
        versions={**dict.fromkeys(state.versions, "retired"), plan.dag_version_id: "active"},
        complete=state.complete | {job.generation for job in plan.jobs},
        datasets=tuple(datasets.values()),
    )


def told(plan: DeployPlan) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {job.name: (job.action, job.reasons) for job in plan.jobs}


CHAIN = (a_job("raw"), a_job("clean", "raw"), a_job("daily", "clean"), a_job("other", "raw"))


def with_clean(**fields: Any) -> tuple[Job, ...]:
    return tuple(msgspec.structs.replace(job, **fields) if job.name == "clean" else job for job in CHAIN)


def test_the_first_deploy_creates_everything() -> None:
    plan = deploy_plan(facts_of(*CHAIN), DagState())
    assert told(plan) == dict.fromkeys(("raw", "clean", "daily", "other"), ("create", ("new",)))
    assert plan.built == ("raw", "clean", "daily", "other")
    assert plan.status is None
    assert [dataset.old for dataset in plan.datasets] == [None] * 4


def test_the_same_files_change_nothing() -> None:
    facts = facts_of(*CHAIN)
    plan = deploy_plan(facts, activated(facts))
    assert plan.changes_nothing
    assert (plan.status, plan.built) == ("active", ())
    assert {action for action, _ in told(plan).values()} == {"keep"}


def test_an_edited_job_and_all_below_it_are_rebuilt_and_the_rest_is_kept() -> None:
    state = activated(facts_of(*CHAIN))
    plan = deploy_plan(facts_of(*with_clean(config={"sql": "SELECT 2"})), state)
    assert told(plan) == {
        "raw": ("keep", ("unchanged",)),
        "clean": ("rebuild", ("sql changed: line 1: 'SELECT 1' → 'SELECT 2'",)),
        "daily": ("rebuild", ("reads clean, which is rebuilt",)),
        "other": ("keep", ("unchanged",)),
    }
    assert state.current is not None
    by_job = {dataset.job: dataset for dataset in plan.datasets}
    assert by_job["raw"].old == by_job["raw"].new
    assert by_job["daily"].old != by_job["daily"].new
    assert by_job["daily"].old == state.current.pointers[by_job["daily"].dataset_uuid]


def test_going_back_to_old_files_finds_their_data() -> None:
    first, second = facts_of(*CHAIN), facts_of(*with_clean(config={"sql": "SELECT 2"}))
    state = activated(second, activated(first))
    plan = deploy_plan(first, state)
    assert (plan.status, plan.built) == ("retired", ())
    assert told(plan)["clean"][0] == "reuse"
    assert told(plan)["daily"] == (
        "reuse",
        ("built before, and its data still stand", "reads clean, which is taken from before"),
    )


def test_a_generation_that_was_never_built_whole_is_built() -> None:
    first, second = facts_of(*CHAIN), facts_of(*with_clean(config={"sql": "SELECT 2"}))
    state = activated(second)
    plan = deploy_plan(first, state)
    assert plan.built == ("clean", "daily")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"operator": "pyspark"}, "operator changed: spark_sql → pyspark"),
        ({"partition_by": ("day",)}, "partition_by changed: nothing → day"),
        ({"unique_key": ("id", "day")}, "unique_key changed: nothing → id, day"),
        ({"update_strategy": "append"}, "update_strategy changed: replace → append"),
        ({"execution_strategy": "PerUpdate"}, "execution_strategy changed: nothing → PerUpdate"),
        ({"outputs": 2}, "outputs changed: 1 → 2"),
        ({"schema": Schema(columns=(Column("id", "int"),))}, "schema changed"),
        ({"secrets": ("token",)}, "secrets changed"),
        ({"config": {"sql": "SELECT 1\nFROM raw"}}, "sql changed: line 2 is new: 'FROM raw'"),
        ({"config": {"sql": "SELECT 1", "mode": "x"}}, "config.mode added"),
        ({"config": {}}, "config.sql removed"),
        ({"inputs": ()}, "reads raw no longer"),
        (
            {"inputs": (Input(source=From(job="raw"), alias="raw", trigger=False, where={"a": 1}),)},
            "input raw changed: trigger, where",
        ),
    ],
)
def test_each_change_is_told_in_words(fields: dict[str, Any], reason: str) -> None:
    plan = deploy_plan(facts_of(*with_clean(**fields)), activated(facts_of(*CHAIN)))
    action, reasons = told(plan)["clean"]
    assert action == "rebuild"
    assert reason in reasons


def _sql_reason(old: str, new: str) -> str:
    plan = deploy_plan(
        facts_of(*with_clean(config={"sql": new})), activated(facts_of(*with_clean(config={"sql": old})))
    )
    (reason,) = told(plan)["clean"][1]
    return reason


def test_long_lines_are_shown_where_they_differ() -> None:
    columns = ", ".join(f"column_{number}" for number in range(30))
    reason = _sql_reason(f"SELECT {columns} FROM raw WHERE a > 1", f"SELECT {columns} FROM raw WHERE a > 2")
    assert reason == "sql changed: line 1: '… FROM raw WHERE a > 1' → '… FROM raw WHERE a > 2'"
    reason = _sql_reason(f"SELECT a, {columns} FROM raw", f"SELECT b, {columns} FROM raw")
    assert reason.startswith("sql changed: line 1: 'SELECT a, column_0, ")
    assert "…' → 'SELECT b" in reason


def test_only_what_differs_of_two_texts_is_counted() -> None:
    assert _sql_reason("SELECT 1,\n  2,\n  3\nFROM raw", "SELECT 1,\n  4,\n  5\nFROM raw") == (
        "sql changed: line 2: '2,' → '4,', and 1 more line"
    )
    assert _sql_reason("SELECT\n 1", "SELECT\n  1") == "sql changed: line 2: ' 1' → '  1'"


def test_a_long_text_is_told_briefly() -> None:
    plan = deploy_plan(facts_of(*with_clean(config={"sql": "x" * 5000})), activated(facts_of(*CHAIN)))
    assert len(told(plan)["clean"][1][0]) < 160


def test_a_changed_file_rebuilds_the_jobs_that_use_it() -> None:
    before = facts_of(*CHAIN, clean={"lib/rules.py": "a", "clean.py": "b"})
    after = facts_of(*CHAIN, clean={"lib/rules.py": "c", "clean.py": "b", "new.py": "d"})
    plan = deploy_plan(after, activated(before))
    assert told(plan)["clean"] == ("rebuild", ("file lib/rules.py changed", "file new.py added"))
    assert plan.built == ("clean", "daily")


def test_settings_that_do_not_touch_the_data_rebuild_nothing() -> None:
    plan = deploy_plan(facts_of(*with_clean(timeout_seconds=9.0, spark={"a": "b"})), activated(facts_of(*CHAIN)))
    assert not plan.changes_nothing
    assert plan.built == ()
    assert told(plan)["clean"] == ("keep", ("unchanged but for spark, timeout_seconds, which needs no build",))


def test_a_job_that_starts_anew_does_so_in_each_version_and_only_then() -> None:
    jobs = (a_job("raw", reset_outputs=True), a_job("clean", "raw"), a_job("apart"))
    first = facts_of(*jobs)
    state = activated(first)
    assert deploy_plan(first, state).built == ()
    plan = deploy_plan(facts_of(*jobs[:2], a_job("apart", sql="SELECT 2")), state)
    assert told(plan)["raw"] == ("rebuild", ("starts anew in each version (reset_outputs)",))
    assert plan.built == ("raw", "clean", "apart")


def test_a_job_that_is_gone_is_named_and_its_dataset_no_longer_pointed_to() -> None:
    plan = deploy_plan(facts_of(*CHAIN[:3]), activated(facts_of(*CHAIN)))
    assert plan.removed == ("other",)
    assert len(plan.pointers) == 3


def test_inputs_are_resolved_to_datasets_with_their_partition_columns() -> None:
    plan = deploy_plan(facts_of(a_job("raw", partition_by=("day",)), a_job("clean", "raw")), DagState())
    (one,) = plan.jobs[1].inputs
    assert (one.dataset_uuid, one.partition_by) == (identity.dataset_uuid(SCOPE, "shop", "raw", 0), ("day",))


def elsewhere(name: str, **fields: Any) -> StandingDataset:
    given = {"dataset_uuid": f"d-{name}", "dag": "ships", "job": "routes", "output": 0, "published": True}
    return StandingDataset(name=name, **{**given, **fields})


def reading(dataset: str) -> Job:
    return a_job("clean", inputs=(Input(source=From(dataset=dataset), alias="x"),), activation="reactive")


def test_a_dataset_of_another_dag_is_read_by_its_published_name() -> None:
    plan = deploy_plan(facts_of(reading("routes")), DagState(datasets=(elsewhere("routes", partition_by=("day",)),)))
    assert plan.problems == ()
    assert plan.jobs[0].inputs[0].dataset_uuid == "d-routes"
    assert plan.jobs[0].inputs[0].partition_by == ("day",)


def test_an_unknown_dataset_is_refused_with_the_nearest_name() -> None:
    state = DagState(datasets=(elsewhere("routes"), elsewhere("hidden", published=False)))
    assert deploy_plan(facts_of(reading("route")), state).problems == (
        "job clean reads the dataset route, which no DAG publishes; did you mean routes?",
    )
    assert "no DAG publishes" in deploy_plan(facts_of(reading("hidden")), state).problems[0]


def test_a_dag_that_reads_its_own_published_name_is_told_to_read_the_job() -> None:
    plan = deploy_plan(facts_of(a_job("raw"), reading("orders"), publish={"orders": "raw"}), DagState())
    assert plan.problems == (
        "job clean reads the dataset orders, which this DAG makes itself; read the job raw instead",
    )


def test_a_published_name_has_one_producer() -> None:
    state = DagState(datasets=(elsewhere("orders"),))
    (problem,) = deploy_plan(facts_of(a_job("raw"), publish={"orders": "raw"}), state).problems
    assert problem.startswith("publish: the name orders belongs to job routes of DAG ships")


def test_one_output_has_one_name() -> None:
    (problem,) = deploy_plan(facts_of(a_job("raw"), publish={"a": "raw", "b": "raw"}), DagState()).problems
    assert problem == "publish: a and b name the same output of job raw; a dataset has one name"


def test_a_name_that_others_read_cannot_be_taken_away() -> None:
    state = activated(facts_of(a_job("raw"), publish={"orders": "raw"}))
    (standing,) = state.datasets
    read = msgspec.structs.replace(standing, readers=("ships.load",))
    (problem,) = deploy_plan(facts_of(a_job("raw")), msgspec.structs.replace(state, datasets=(read,))).problems
    assert problem == "publish: orders is read by ships.load; it can go once nobody reads it"


def test_whoever_reads_a_column_that_goes_is_named() -> None:
    def declaring(*columns: Column) -> BundleFacts:
        return facts_of(a_job("raw", schema=Schema(columns=columns)), publish={"orders": "raw"})

    state = activated(declaring(Column("id", "int"), Column("price", "double")))
    (standing,) = state.datasets
    state = msgspec.structs.replace(
        state, datasets=(msgspec.structs.replace(standing, readers=("ships.load", "tax.sum")),)
    )
    assert deploy_plan(declaring(Column("id", "bigint")), state).warnings == (
        "publish: orders.id becomes bigint, and ships.load, tax.sum reads orders",
        "publish: orders.price goes, and ships.load, tax.sum reads orders",
    )


def test_key_columns_must_be_in_a_schema_that_is_declared_for_good() -> None:
    schema = Schema(columns=(Column("id", "int"),))
    job = a_job("raw", partition_by=("day",), unique_key=("id", "no"), schema=schema)
    assert deploy_plan(facts_of(job), DagState()).problems == (
        "job raw: partition_by names the column day, which its schema does not have",
        "job raw: unique_key names the column no, which its schema does not have",
    )


def test_more_outputs_than_an_event_can_point_to_are_refused() -> None:
    plan = deploy_plan(facts_of(a_job("raw", outputs=MAX_OUTPUTS + 1)), DagState())
    assert "split it into several DAGs" in plan.problems[0]


def test_a_definition_too_large_for_an_event_is_refused() -> None:
    assert "move its text into files" in deploy_plan(facts_of(a_job("raw", sql="x" * 60_000)), DagState()).problems[0]


def test_an_input_that_is_looked_up_per_update_is_told() -> None:
    job = a_job("sum", "raw", "names", partition_by=("day",), execution_strategy="PerUpdate")
    (warning,) = deploy_plan(facts_of(a_job("raw", partition_by=("day",)), a_job("names"), job), DagState()).warnings
    assert warning.startswith("job sum: names is not partitioned by day")


def names_of(datasets: Iterable[StandingDataset]) -> dict[str, str]:
    return {one.job: one.name for one in datasets if one.published}


def test_a_name_moves_only_when_the_version_becomes_current() -> None:
    jobs = (a_job("raw"), a_job("clean"))
    state = activated(facts_of(*jobs, publish={"orders": "raw", "old": "clean"}))
    plan = deploy_plan(facts_of(*jobs, publish={"orders": "clean"}), state)
    assert [(one.name, one.change) for one in plan.names] == [("old", "unpublished"), ("orders", "moved")]
    assert registrations(plan, state) == []
    renamed = renamings("shop", plan.publish, state.datasets)
    assert [(one.job, one.name, one.published) for one in renamed] == [
        ("raw", "shop.raw.0", False),
        ("clean", "orders", True),
    ]
    after = activated(facts_of(*jobs, publish={"orders": "clean"}), state)
    assert names_of(after.datasets) == {"clean": "orders"}


def test_a_new_name_is_taken_at_once_so_that_nobody_else_can_have_it() -> None:
    state = activated(facts_of(a_job("raw")))
    plan = deploy_plan(facts_of(a_job("raw"), a_job("more"), publish={"orders": "raw"}), state)
    assert [(one.name, one.published) for one in registrations(plan, state)] == [
        ("orders", True),
        ("shop.more.0", False),
    ]
    assert [(one.name, one.change) for one in plan.names] == [("orders", "published")]
