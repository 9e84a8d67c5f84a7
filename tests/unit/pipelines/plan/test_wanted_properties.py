"""What holds for every job and every history of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from noetl.model.dataset import ALL, partition_key, projected
from noetl.pipelines.plan.wanted_tasks import affected, wanted
from noetl.pipelines.plan.wanted_values import InputOf, InputView, JobView, PartView, WantedTask, consumed, given

COLUMNS = st.sampled_from([(), ("day",), ("day", "region"), ("region",)])
ALIASES = ("a", "b", "c")


@st.composite
def jobs(draw: st.DrawFn, **fixed: Any) -> JobView:
    inputs = tuple(
        InputOf(
            alias=alias,
            dataset_uuid=f"d-{alias}",
            trigger=draw(st.booleans()),
            partition_by=draw(COLUMNS),
        )
        for alias in ALIASES[: draw(st.integers(1, 3))]
    )
    fields = {
        "partition_by": draw(COLUMNS),
        "wait": draw(st.sampled_from(["any", "all"])),
        "strategy": draw(st.sampled_from(["PerPartition", "PerUpdate"])),
    }
    return JobView(generation="g", job_hash="h", inputs=inputs, **{**fields, **fixed})


class History:
    """The inputs of a job as one commit or drop after another leaves them."""

    def __init__(self, job: JobView) -> None:
        self.job = job
        self.parts: dict[str, dict[str, PartView]] = {one.alias: {} for one in job.inputs}

    def change(self, number: int, day: int, region: str, *, drop: bool) -> tuple[InputOf, str] | None:
        one = self.job.inputs[number % len(self.job.inputs)]
        key = partition_key(one.partition_by, {"day": day, "region": region})
        before = self.parts[one.alias].get(key)
        if drop and (before is None or before.dropped):
            return None
        version = 1 + (before.version if before else 0)
        self.parts[one.alias][key] = PartView(
            partition_key=key, version=version, content_digest=str(version), dropped=drop
        )
        return one, key

    @property
    def views(self) -> dict[str, InputView]:
        return {
            alias: InputView(dataset_version=f"v-{alias}", parts=tuple(parts.values()))
            for alias, parts in self.parts.items()
        }


CHANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 2), st.sampled_from(["eu", "us"]), st.booleans()), max_size=12
)
Changes = list[tuple[int, int, str, bool]]


def played(job: JobView, changes: Changes) -> Iterator[tuple[History, tuple[InputOf, str]]]:
    history = History(job)
    for number, day, region, drop in changes:
        done = history.change(number, day, region, drop=drop)
        if done is not None:
            yield history, done


def routed(job: JobView, changes: Changes) -> tuple[History, list[WantedTask]]:
    """Route each change by itself, as it happens; each task is under way from then on."""
    history, tasks = History(job), []
    for now, (one, key) in played(job, changes):
        history = now
        only = affected(job, one.dataset_uuid, key)
        cursors = given(job, {}, [task.inputs for task in tasks])
        tasks += wanted(job, now.views, cursors, only=only, known={task.dedupe_key for task in tasks})
    return history, tasks


@for_all(jobs(), CHANGES)
def test_the_same_inputs_want_the_same_tasks(job: JobView, changes: Changes) -> None:
    history, _ = routed(job, changes)
    turned = {
        alias: InputView(dataset_version=view.dataset_version, parts=view.parts[::-1])
        for alias, view in reversed(history.views.items())
    }
    assert wanted(job, turned) == wanted(job, history.views)


@for_all(jobs(), CHANGES)
def test_nothing_is_wanted_twice(job: JobView, changes: Changes) -> None:
    _, tasks = routed(job, changes)
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert len({(task.partition_key, task.dedupe_key) for task in tasks}) == len(tasks)


@settings(max_examples=300)
@for_all(jobs(), CHANGES)
def test_looking_at_everything_after_routing_each_change_finds_nothing_new(job: JobView, changes: Changes) -> None:
    history, tasks = routed(job, changes)
    cursors = given(job, {}, [task.inputs for task in tasks])
    assert wanted(job, history.views, cursors, known={task.dedupe_key for task in tasks}) == []


@for_all(jobs(strategy="PerPartition", wait="any"), CHANGES)
def test_each_part_that_starts_the_job_is_read_by_exactly_the_tasks_of_its_partition(
    job: JobView, changes: Changes
) -> None:
    history, _ = routed(job, changes)
    tasks = {task.partition_key: task for task in wanted(job, history.views)}
    for one in job.inputs:
        if not one.trigger or not (job.carried_by(one) or not job.is_split):
            continue
        for part in history.parts[one.alias].values():
            if part.dropped:
                continue
            readers = [
                key
                for key, task in tasks.items()
                for read in task.inputs
                if read.alias == one.alias and (part.partition_key, part.version, 0) in read.parts
            ]
            expected = projected(part.partition_key, job.partition_by) if job.is_split else ALL
            assert readers == [expected]


@for_all(jobs(strategy="PerUpdate"), CHANGES)
def test_per_update_no_version_is_read_twice_and_none_is_left_out(job: JobView, changes: Changes) -> None:
    _, tasks = routed(job, changes)
    reached: dict[tuple[str, str, str], int] = {}
    for task in tasks:
        for one in task.inputs:
            if one.alias not in job.incremental:
                continue
            for key, version, after in one.parts:
                place = (one.alias, one.dataset_version, key)
                assert reached.get(place, 0) == after < version
                reached[place] = version
        assert consumed(job, task.inputs)


@for_all(jobs(), CHANGES)
def test_the_last_task_of_a_partition_saw_what_starts_it_as_it_stands(job: JobView, changes: Changes) -> None:
    history, tasks = routed(job, changes)
    if job.strategy == "PerUpdate":
        return
    last = {task.partition_key: task for task in tasks}
    for task in wanted(job, history.views):
        seen = {one.alias: one.parts for one in last[task.partition_key].inputs}
        now = {one.alias: one.parts for one in task.inputs}
        for one in job.inputs:
            if one.trigger:
                assert seen.get(one.alias) == now.get(one.alias)
