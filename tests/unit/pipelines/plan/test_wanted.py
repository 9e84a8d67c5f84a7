"""Which tasks a job wants, case by case."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.model.dataset import ALL
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_tasks import affected, emitted, wanted
from noetl.pipelines.plan.wanted_values import InputOf, InputView, JobView, PartView, WantedTask, consumed, given

DAY: tuple[str, ...] = ("day",)


def an_input(alias: str, *columns: str, trigger: bool = True) -> InputOf:
    return InputOf(alias=alias, dataset_uuid=f"d-{alias}", trigger=trigger, partition_by=columns)


def a_job(
    *inputs: InputOf,
    by: tuple[str, ...] = (),
    wait: Literal["any", "all"] = "any",
    strategy: Literal["PerUpdate", "PerPartition"] = "PerPartition",
) -> JobView:
    return JobView(generation="g", job_hash="h", inputs=inputs, partition_by=by, wait=wait, strategy=strategy)


def holding(generation: str = "v", /, **parts: int) -> InputView:
    """An input's partitions and versions: `all`, or days as `d1`; a negative version was dropped."""
    return InputView(
        dataset_version=generation,
        parts=tuple(
            PartView(
                partition_key=ALL if name == ALL else f"day={name[1:]}",
                version=abs(version),
                content_digest=f"{generation}{name}{version}",
                dropped=version < 0,
            )
            for name, version in parts.items()
        ),
    )


def reads(task: WantedTask) -> dict[str, list[tuple[str, int, int]]]:
    return {one.alias: list(one.parts) for one in task.inputs}


def partitions(tasks: list[WantedTask]) -> list[str]:
    return [task.partition_key for task in tasks]


def test_a_job_without_partitions_reads_everything_in_one_task() -> None:
    job = a_job(an_input("a", "day"), an_input("b"))
    (task,) = wanted(job, {"a": holding(d1=1, d2=4), "b": holding("w", all=2)})
    assert task.partition_key == ALL
    assert reads(task) == {"a": [("day=1", 1, 0), ("day=2", 4, 0)], "b": [("all", 2, 0)]}
    assert task.task_id == identity.task_id("g", task.dedupe_key)


def test_a_job_partitioned_like_its_input_has_a_task_for_each_partition() -> None:
    tasks = wanted(a_job(an_input("a", "day"), by=DAY), {"a": holding(d1=1, d2=4)})
    assert partitions(tasks) == ["day=1", "day=2"]
    assert reads(tasks[1]) == {"a": [("day=2", 4, 0)]}


def test_finer_partitions_of_an_input_are_gathered_by_the_columns_of_the_job() -> None:
    view = InputView(
        dataset_version="v",
        parts=tuple(
            PartView(partition_key=f"day={day}/region={region}", version=1, content_digest="x")
            for day, region in ((1, "eu"), (1, "us"), (2, "eu"))
        ),
    )
    tasks = wanted(a_job(an_input("a", "day", "region"), by=("region",)), {"a": view})
    assert partitions(tasks) == ["region=eu", "region=us"]
    assert reads(tasks[0]) == {"a": [("day=1/region=eu", 1, 0), ("day=2/region=eu", 1, 0)]}


def test_an_input_without_the_jobs_columns_is_read_whole_by_every_task() -> None:
    job = a_job(an_input("a", "day"), an_input("names"), by=DAY)
    tasks = wanted(job, {"a": holding(d1=1, d2=1), "names": holding("n", all=7)})
    assert [reads(task)["names"] for task in tasks] == [[("all", 7, 0)], [("all", 7, 0)]]
    later = wanted(job, {"a": holding(d1=1, d2=1), "names": holding("n", all=8)})
    assert {task.task_id for task in later}.isdisjoint(task.task_id for task in tasks)


def test_rows_are_split_by_value_when_no_input_has_the_jobs_columns() -> None:
    (task,) = wanted(a_job(an_input("a"), by=DAY), {"a": holding(all=1)})
    assert task.partition_key == ALL


def test_any_starts_with_the_first_input_that_has_the_partition() -> None:
    job = a_job(an_input("a", "day"), an_input("b", "day"), by=DAY)
    tasks = wanted(job, {"a": holding(d1=1), "b": holding("w", d2=1)})
    assert partitions(tasks) == ["day=1", "day=2"]
    assert reads(tasks[0]) == {"a": [("day=1", 1, 0)], "b": []}


def test_all_waits_for_every_input_to_have_the_partition() -> None:
    job = a_job(an_input("a", "day"), an_input("b", "day"), an_input("c"), by=DAY, wait="all")
    inputs = {"a": holding(d1=1, d2=1), "b": holding("w", d2=1, d3=1)}
    assert wanted(job, inputs) == []
    assert partitions(wanted(job, inputs | {"c": holding("x", all=1)})) == ["day=2"]


def test_all_does_not_wait_for_an_input_that_is_only_read() -> None:
    job = a_job(an_input("a", "day"), an_input("b", "day", trigger=False), by=DAY, wait="all")
    assert partitions(wanted(job, {"a": holding(d1=1)})) == ["day=1"]


def test_an_input_that_is_only_read_starts_nothing() -> None:
    job = a_job(an_input("a", "day"), an_input("r", "day", trigger=False), by=DAY)
    assert wanted(job, {"r": holding(d1=1)}) == []
    assert affected(job, "d-r", "day=1") == frozenset()


def test_a_job_in_which_nothing_starts_wants_nothing() -> None:
    job = a_job(an_input("r", "day", trigger=False), by=DAY, wait="all")
    assert wanted(job, {"r": holding(d1=1)}) == []


def test_partitions_that_are_only_read_do_not_split_the_work() -> None:
    job = a_job(an_input("r", "day", trigger=False), an_input("names"), by=DAY)
    assert wanted(job, {"r": holding(d1=1)}) == []
    (task,) = wanted(job, {"r": holding(d1=1, d2=1), "names": holding("n", all=1)})
    assert (task.partition_key, len(reads(task)["r"])) == (ALL, 2)
    assert affected(job, "d-names", "all") == {ALL}


def test_a_change_of_what_is_only_read_does_not_start_done_work_again() -> None:
    job = a_job(an_input("a"), an_input("r", trigger=False))
    (task,) = wanted(job, {"a": holding(all=1), "r": holding("r", all=1)})
    known = {task.dedupe_key}
    changed = {"a": holding(all=1), "r": holding("r", all=2)}
    assert wanted(job, changed, known=known) == []
    (later,) = wanted(job, changed | {"a": holding(all=2)}, known=known)
    assert reads(later)["r"] == [("all", 2, 0)]


def test_another_generation_of_an_input_is_new_work_even_at_the_same_versions() -> None:
    job = a_job(an_input("a"))
    (before,) = wanted(job, {"a": holding("old", all=1)})
    (after,) = wanted(job, {"a": holding("new", all=1)})
    assert before.task_id != after.task_id


def test_equal_contents_under_other_versions_are_recognised() -> None:
    job = a_job(an_input("a"))

    def memo(version: int, digest: str, job: JobView = job) -> str:
        part = PartView(partition_key=ALL, version=version, content_digest=digest)
        return wanted(job, {"a": InputView(dataset_version="v", parts=(part,))})[0].memo_key

    assert memo(1, "same") == memo(2, "same")
    assert memo(1, "same") != memo(2, "other")
    assert memo(1, "same") != memo(1, "same", msgspec.structs.replace(job, job_hash="h2"))


def test_news_alone_are_read_per_update() -> None:
    job = a_job(an_input("a", "day"), an_input("r", "day", trigger=False), strategy="PerUpdate")
    inputs = {"a": holding(d1=3, d2=1), "r": holding("r", d1=5)}
    (task,) = wanted(job, inputs, {("v", "day=1"): 2, ("r", "day=1"): 5})
    assert reads(task) == {"a": [("day=1", 3, 2), ("day=2", 1, 0)], "r": [("day=1", 5, 0)]}
    cursors = {(generation, key): version for _, generation, key, version in consumed(job, task.inputs)}
    assert cursors == {("v", "day=1"): 3, ("v", "day=2"): 1}
    assert wanted(job, inputs, cursors) == []


def test_news_that_a_task_under_way_was_given_are_not_given_again() -> None:
    job = a_job(an_input("a"), strategy="PerUpdate")
    (first,) = wanted(job, {"a": holding(all=1)})
    (second,) = wanted(job, {"a": holding(all=3)}, given(job, {}, [first.inputs]))
    assert reads(second) == {"a": [("all", 3, 1)]}


def test_per_update_an_input_read_whole_beside_partitions_is_a_lookup() -> None:
    job = a_job(an_input("a", "day"), an_input("names"), by=DAY, strategy="PerUpdate")
    inputs = {"a": holding(d1=1), "names": holding("n", all=4)}
    (task,) = wanted(job, inputs)
    assert consumed(job, task.inputs) == [("d-a", "v", "day=1", 1)]
    assert affected(job, "d-names", "all") == frozenset()
    assert wanted(job, inputs | {"names": holding("n", all=5)}, {("v", "day=1"): 1}) == []


def test_per_update_skipping_by_contents_never_holds() -> None:
    job = a_job(an_input("a"), strategy="PerUpdate")
    same = [PartView(partition_key=ALL, version=version, content_digest="same") for version in (1, 2)]
    memos = {wanted(job, {"a": InputView(dataset_version="v", parts=(part,))})[0].memo_key for part in same}
    assert len(memos) == 2


def test_a_dropped_partition_is_worked_again_only_where_it_was_worked_before() -> None:
    job = a_job(an_input("a", "day"), by=DAY)
    before = wanted(job, {"a": holding(d1=1)})
    assert wanted(job, {"a": holding(d1=-2)}) == []
    (task,) = wanted(job, {"a": holding(d1=-2)}, known={before[0].dedupe_key})
    assert reads(task) == {"a": []}
    assert wanted(job, {"a": holding(d1=-2)}, known={before[0].dedupe_key, task.dedupe_key}) == []


def test_a_dropped_partition_leaves_what_is_read_whole() -> None:
    job = a_job(an_input("a", "day"))
    (before,) = wanted(job, {"a": holding(d1=1, d2=1)})
    (after,) = wanted(job, {"a": holding(d1=1, d2=-2)})
    assert reads(after) == {"a": [("day=1", 1, 0)]}
    assert before.task_id != after.task_id


def test_a_change_touches_only_the_partitions_that_read_it() -> None:
    job = a_job(an_input("a", "day", "region"), an_input("names"), by=DAY)
    assert affected(job, "d-a", "day=1/region=eu") == {"day=1"}
    assert affected(job, "d-names", "all") is None
    assert affected(a_job(an_input("a", "day")), "d-a", "day=1") == {ALL}
    tasks = wanted(a_job(an_input("a", "day"), by=DAY), {"a": holding(d1=1, d2=1)}, only={"day=2", "day=9"})
    assert partitions(tasks) == ["day=2"]


def test_a_source_is_worked_once_for_a_cause() -> None:
    job = a_job(an_input("r", "day", trigger=False), by=DAY)
    inputs = {"r": holding(d1=1)}
    one, other = (emitted(job, inputs, identity.emission_key(number)) for number in (7, 8))
    assert emitted(job, inputs, "emission:7") == one
    assert (one.partition_key, reads(one)) == (ALL, {"r": [("day=1", 1, 0)]})
    assert one.task_id != other.task_id
    assert one.memo_key != other.memo_key


def test_what_a_task_reads_stands_in_events_as_agreed() -> None:
    (task,) = wanted(a_job(an_input("a")), {"a": holding(all=1)})
    expected: list[dict[str, Any]] = [
        {"alias": "a", "dataset_uuid": "d-a", "dataset_version": "v", "parts": [["all", 1, 0]]}
    ]
    assert msgspec.json.decode(msgspec.json.encode(task.inputs)) == expected
