"""What must hold between jobs: names given once, references that lead somewhere, no job that waits for itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from noetl.language.dag.written_job import Origin, WrittenJob, origin_of
from noetl.language.grammar.problems import Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import Place

MAX_OUTPUTS: Final = 400
"""Outputs, and jobs, of one DAG: all its pointers are flipped by one event."""


def hold_graph(root: Node, jobs: Sequence[WrittenJob], problems: Problems) -> None:
    """Note what is wrong with the ways between jobs, and with what is published."""
    _Graph(root, jobs, problems).hold()


def in_order(upstream: Mapping[str, Collection[str]]) -> list[str]:
    """Return names so that each follows those it reads, otherwise in the order given; what is in a cycle is left out."""
    numbers = {name: number for number, name in enumerate(upstream)}
    names = list(upstream)
    downstream: dict[str, list[str]] = {name: [] for name in names}
    missing = {name: len(set(ups)) for name, ups in upstream.items()}
    for name, ups in upstream.items():
        for up in set(ups):
            downstream[up].append(name)
    ready = [numbers[name] for name in names if not missing[name]]
    placed = []
    while ready:
        name = names[heappop(ready)]
        placed.append(name)
        for one in downstream[name]:
            missing[one] -= 1
            if not missing[one]:
                heappush(ready, numbers[one])
    return placed


class _Graph:
    def __init__(self, root: Node, jobs: Sequence[WrittenJob], problems: Problems) -> None:
        self._root = root
        self._problems = problems
        self._jobs = jobs
        self._by_name: dict[str, WrittenJob] = {}
        for job in jobs:
            if job.text("name"):
                self._by_name.setdefault(job.name, job)

    def hold(self) -> None:
        self._once()
        for job in self._jobs:
            self._inputs(job)
        self._publish()
        outputs = sum(job.outputs for job in self._jobs)
        if max(outputs, len(self._jobs)) > MAX_OUTPUTS:
            said = f"the DAG has {len(self._jobs)} jobs and {outputs} outputs, and {MAX_OUTPUTS} are allowed of each"
            self._problems.error("too_large", said, self._root.place, "split it; publish what the other DAG reads")
            return
        self._cycles()

    def _once(self) -> None:
        seen: dict[str, Place] = {}
        for job in self._jobs:
            name = job.node.get("name")
            if name is None or name.text is None:
                continue
            if name.text in seen:
                hint = f"the other one stands in line {seen[name.text].line}"
                self._problems.error("duplicate_job", f"there is already a job {name.text}", name.place, hint)
            seen.setdefault(name.text, name.place)

    def _inputs(self, job: WrittenJob) -> None:
        aliases: set[str] = set()
        for one in job.inputs:
            origin, alias = origin_of(one), one.get("alias")
            if origin is not None:
                self._leads(origin)
            if alias is None or alias.text is None:
                continue
            # Spark does not tell table names apart by their case.
            if alias.text.lower() in aliases:
                said = f"the job {job.name} has two inputs called {alias.text}"
                self._problems.error("duplicate_alias", said, alias.place, "give one of them another alias")
            aliases.add(alias.text.lower())

    def _leads(self, origin: Origin) -> None:
        job, dataset = origin.node.get("job"), origin.node.get("dataset")
        if (job is None) == (dataset is None):
            said = "from has job or dataset" + ("" if job is None else ", not both")
            self._problems.error("wrong_value", said, origin.node.place, "write {job: NAME} or {dataset: NAME}")
            return
        if dataset is not None and "output" in origin.node.mapping:
            place = origin.node.key_place("output")
            self._problems.error("misplaced_field", "a dataset has no outputs to choose from", place, "remove it")
        if job is not None and job.text is not None:
            self._output(job.text, origin, job.place)

    def _output(self, name: str, origin: Origin, place: Place) -> None:
        found = self._by_name.get(name)
        if found is None:
            self._problems.error("unknown_job", f"there is no job {name}", place, suggest(name, self._by_name))
            return
        if origin.output >= found.outputs:
            many = "no output" if not found.outputs else f"{found.outputs} output{'s' * (found.outputs > 1)}"
            at = origin.node.get("output")
            hint = "outputs are counted from 0" if found.outputs else "it has no rows to read"
            said = f"{name} has {many}, and output {origin.output} is asked for"
            self._problems.error("unknown_output", said, place if at is None else at.place, hint)

    def _cycles(self) -> None:
        upstream = {
            name: [up for one in job.inputs if (origin := origin_of(one)) and (up := origin.job) in self._by_name]
            for name, job in self._by_name.items()
        }
        sound = set(in_order(upstream))
        told: set[str] = set()
        for name in upstream:
            ring = [] if name in sound or name in told else _ring(name, upstream)
            if not ring or told & set(ring):
                continue
            told |= set(ring)
            shown = " → ".join([*reversed(ring), ring[-1]])
            said = f"the jobs wait for each other: {shown}" if len(ring) > 1 else f"the job {name} reads its own output"
            place = self._by_name[name].node.mapping["name"].place
            self._problems.error("cycle", said, place, "let one of them read something else")

    def _publish(self) -> None:
        publish = self._root.get("publish")
        seen: dict[tuple[str, int], str] = {}
        for name, entry in {} if publish is None else publish.mapping.items():
            origin = origin_of(entry)
            if origin is None or publish is None:
                continue
            place = publish.key_place(name)
            if origin.job is None:
                if origin.node.get("dataset") is not None:
                    said = "a DAG publishes what its own jobs build"
                    self._problems.error("wrong_value", said, origin.node.place, "write from: {job: NAME}")
                continue
            self._output(origin.job, origin, origin.node.place)
            other = seen.setdefault((origin.job, origin.output), name)
            if other != name:
                said = f"{name} is the same output as {other}"
                self._problems.error("duplicate_publish", said, place, "publish it under one name")


def _ring(start: str, upstream: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the shortest way from a job through what it reads back to itself; empty if there is none."""
    came: dict[str, str] = {}
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for up in upstream[name]:
            if up == start:
                ring = [name]
                while ring[-1] != start:
                    ring.append(came[ring[-1]])
                return ring[::-1]
            if up not in came:
                came[up] = name
                waiting.append(up)
    return []
