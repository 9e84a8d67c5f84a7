"""Which tasks a job wants: current partitions go in, always the same tasks come out, cut to fit one event. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from noetl.model.dataset import ALL, projected
from noetl.pipelines.plan import identity
from noetl.pipelines.plan.wanted_values import (
    NO_CURSORS,
    Cursors,
    InputOf,
    InputView,
    JobView,
    PartView,
    WantedInput,
    WantedTask,
)

_NOTHING: Final = InputView(dataset_version="")


class _Side(msgspec.Struct, frozen=True):
    """An input and what stands behind it, by the partition of the job that reads it; `all` when each reads everything."""

    about: InputOf
    generation: str
    news_only: bool
    whole: bool
    parts: dict[str, list[PartView]]

    def of(self, key: str) -> Sequence[PartView]:
        return self.parts.get(ALL if self.whole else key, ())


def affected(job: JobView, dataset_uuid: str, partition_key: str) -> frozenset[str] | None:
    """Return the job's partitions that a change of one partition of a dataset may start; None means all of them."""
    found: set[str] = set()
    split = job.is_split
    for one in job.inputs:
        if one.dataset_uuid != dataset_uuid or not one.trigger:
            continue
        if not split:
            found.add(ALL)
        elif job.carried_by(one):
            found.add(projected(partition_key, job.partition_by))
        elif job.strategy != "PerUpdate" or job.wait == "all":
            # Of a job that reads news it is only looked up, but partitions may have waited for it to be there.
            return None
    return frozenset(found)


def wanted(
    job: JobView,
    inputs: Mapping[str, InputView],
    cursors: Cursors = NO_CURSORS,
    *,
    only: Collection[str] | None = None,
    known: Collection[str] = (),
    invalidation: str | None = None,
) -> list[WantedTask]:
    """Return the tasks that should exist for what the inputs, by alias, hold now, by partition.

    `only` names the partitions of the job to look at. `known` are the keys of tasks the generation has already: what
    the same versions started before is not wanted again, even if an input that is only read has changed since.
    """
    started = {identity.same_start(key) for key in known}
    worked = {start.rpartition(":")[0] for start in started}
    sides = _sides(job, inputs)
    keys = {key for side in sides if side.about.trigger and not side.whole for key in side.parts}
    if not job.is_split:
        keys = {ALL}
    found = []
    for key in sorted(keys if only is None else keys & set(only)):
        if not _is_ready(job, sides, key, with_dropped=key in worked):
            continue
        task = _task(job, key, sides, cursors, invalidation)
        if task is not None and identity.same_start(task.dedupe_key) not in started:
            found.append(task)
    return found


def emitted(job: JobView, inputs: Mapping[str, InputView], dedupe_key: str) -> WantedTask:
    """Return the one task of a source job for a run or a build; inputs it reads besides are pinned whole."""
    sides = _sides(msgspec.structs.replace(job, partition_by=(), strategy=None), inputs)
    return WantedTask(
        task_id=identity.task_id(job.generation, dedupe_key),
        partition_key=ALL,
        dedupe_key=dedupe_key,
        # A source looks at the world outside: no two of its tasks are ever the same work.
        memo_key=identity.memo_key(job.job_hash, ALL, [("", ALL, dedupe_key)]),
        inputs=_with_generation([_pinned(side, ALL, NO_CURSORS) for side in sides]),
    )


def emitted_again(job: JobView, inputs: Mapping[str, InputView], execution_id: int, partition_key: str) -> WantedTask:
    """Return the task of a source job that makes one partition for a backfill."""
    dedupe_key = identity.backfill_key(execution_id, partition_key)
    return msgspec.structs.replace(
        emitted(job, inputs, dedupe_key),
        task_id=identity.again_id(job.generation, dedupe_key),
        partition_key=partition_key,
    )


def _sides(job: JobView, inputs: Mapping[str, InputView]) -> list[_Side]:
    split, news = job.is_split, job.incremental
    found = []
    for one in job.inputs:
        view = inputs.get(one.alias, _NOTHING)
        whole = not (split and job.carried_by(one))
        parts: dict[str, list[PartView]] = {}
        for part in sorted(view.parts, key=lambda part: part.partition_key):
            key = ALL if whole else projected(part.partition_key, job.partition_by)
            parts.setdefault(key, []).append(part)
        found.append(_Side(one, view.dataset_version, one.alias in news, whole, parts))
    return found


def _is_ready(job: JobView, sides: Sequence[_Side], key: str, *, with_dropped: bool) -> bool:
    """Tell whether what starts the job is there; a partition that was worked before may also have lost all it had."""

    def has(side: _Side) -> bool:
        return any(with_dropped or not part.dropped for part in side.of(key))

    triggers = [side for side in sides if side.about.trigger]
    if job.wait == "all":
        return bool(triggers) and all(map(has, triggers))
    # Whether a partition is there is said by the inputs that have it for themselves, if there are such.
    return any(has(side) for side in triggers if not (job.is_split and side.whole))


def _task(
    job: JobView, key: str, sides: Sequence[_Side], cursors: Cursors, invalidation: str | None
) -> WantedTask | None:
    pinned = [_pinned(side, key, cursors) for side in sides]
    starting, terms, contents = [], [], []
    per_update = job.strategy == "PerUpdate"
    for side, one in zip(sides, pinned, strict=True):
        found = _terms(side, key, one)
        terms += found
        starting += found if (side.news_only if per_update else side.about.trigger) else []
        contents += _contents(side, key, one, per_update=per_update)
    if per_update and not starting:
        return None
    dedupe_key = identity.dedupe_key(key, starting, terms, invalidation)
    named = identity.task_id if invalidation is None else identity.again_id
    return WantedTask(
        task_id=named(job.generation, dedupe_key),
        partition_key=key,
        dedupe_key=dedupe_key,
        memo_key=identity.memo_key(job.job_hash, key, contents),
        inputs=_with_generation(pinned),
    )


def _with_generation(pinned: Sequence[WantedInput]) -> tuple[WantedInput, ...]:
    return tuple(one for one in pinned if one.dataset_version)


def _pinned(side: _Side, key: str, cursors: Cursors) -> WantedInput:
    parts = []
    for part in side.of(key):
        after = cursors.get((side.generation, part.partition_key), 0) if side.news_only else 0
        if not part.dropped and part.version > after:
            parts.append((part.partition_key, part.version, after))
    return WantedInput(
        alias=side.about.alias,
        dataset_uuid=side.about.dataset_uuid,
        dataset_version=side.generation,
        parts=tuple(parts),
    )


def _terms(side: _Side, key: str, pinned: WantedInput) -> list[identity.VersionTerm]:
    """Return the versions that name the work; of an input read whole those of dropped partitions too."""
    if side.news_only:
        return [(pinned.alias, side.generation, name, version) for name, version, _ in pinned.parts]
    return [(pinned.alias, side.generation, part.partition_key, part.version) for part in side.of(key)]


def _contents(side: _Side, key: str, pinned: WantedInput, *, per_update: bool) -> list[tuple[str, str, str]]:
    alias = side.about.alias
    if per_update:
        # News are worked whatever they hold: their cursor has to move on.
        return [(alias, name, f"{side.generation}@{after}-{version}") for name, version, after in pinned.parts]
    return [(alias, part.partition_key, part.content_digest) for part in side.of(key) if not part.dropped]


CURSOR_BYTES: Final = 260
"""What the cursor of one partition takes in a task's last event, besides the partition's name."""
MOST_BYTES: Final = 40 * 1024

Part = tuple[str, int, int]


def bounded(job: JobView, tasks: Sequence[WantedTask]) -> list[WantedTask]:
    """Return the tasks with none that moves more cursors than fit; one that joins several news is left whole."""
    if job.strategy != "PerUpdate" or len(job.incremental) != 1:
        return list(tasks)
    (alias,) = job.incremental
    return [one for task in tasks for one in _cut(job, task, alias)]


def _cut(job: JobView, task: WantedTask, alias: str) -> Iterator[WantedTask]:
    news = next((one for one in task.inputs if one.alias == alias), None)
    chunks = [] if news is None else list(_chunks(news.parts))
    if news is None or len(chunks) <= 1:
        yield task
        return
    for chunk in chunks:
        inputs = tuple(msgspec.structs.replace(one, parts=chunk) if one.alias == alias else one for one in task.inputs)
        starting = _chunk_terms(msgspec.structs.replace(news, parts=chunk))
        key = identity.dedupe_key(task.partition_key, starting, [term for one in inputs for term in _chunk_terms(one)])
        yield WantedTask(
            task_id=identity.task_id(job.generation, key),
            partition_key=task.partition_key,
            dedupe_key=key,
            # News are worked whatever they hold, so that no two tasks of them are ever the same work.
            memo_key=identity.memo_key(job.job_hash, task.partition_key, [(alias, task.partition_key, key)]),
            inputs=inputs,
        )


def _chunks(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    chunk: list[Part] = []
    size = 0
    for part in parts:
        bytes_ = CURSOR_BYTES + len(part[0].encode())
        if chunk and size + bytes_ > MOST_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(part)
        size += bytes_
    if chunk:
        yield tuple(chunk)


def _chunk_terms(one: WantedInput) -> list[identity.VersionTerm]:
    return [(one.alias, one.dataset_version, key, version) for key, version, _ in one.parts]
