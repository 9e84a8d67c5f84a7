"""Tasks that would read more news than one event can tell about are cut into several, always the same ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from noetl.plan import identity
from noetl.plan.wanted_values import JobView, WantedInput, WantedTask

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
        starting = _terms(msgspec.structs.replace(news, parts=chunk))
        key = identity.dedupe_key(task.partition_key, starting, [term for one in inputs for term in _terms(one)])
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


def _terms(one: WantedInput) -> list[identity.VersionTerm]:
    return [(one.alias, one.dataset_version, key, version) for key, version, _ in one.parts]
