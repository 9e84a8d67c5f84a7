"""What parses has no cycle and stands in order; layout and order of keys change no digest."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noetl.language.dag.parse import parse, problems_of
from noetl.language.dag.rules.graph import in_order

NAMES = [f"j{number}" for number in range(7)]


@st.composite
def graphs(draw: st.DrawFn, *, sound: bool) -> dict[str, list[str]]:
    """Draw jobs with what each reads, written in any order; a sound one reads only what comes before it."""
    order = draw(st.permutations(NAMES[: draw(st.integers(1, len(NAMES)))]))
    reads = {
        name: draw(st.lists(st.sampled_from(order[:at] if sound else order), unique=True, max_size=3))
        if at or not sound
        else []
        for at, name in enumerate(order)
    }
    return {name: reads[name] for name in draw(st.permutations(order))}


def written(graph: dict[str, list[str]]) -> dict[str, Any]:
    """Write a graph as a DAG whose every job reads its inputs."""
    jobs = []
    for name, ups in graph.items():
        tables = ", ".join(ups)
        job: dict[str, Any] = {"name": name, "sql": f"SELECT 1 AS a{' FROM ' * bool(ups)}{tables}"}
        jobs.append(job | ({"inputs": ups} if ups else {}))
    return {"name": "x", "jobs": jobs}


@settings(max_examples=40)
@given(graphs(sound=True))
def test_each_job_follows_what_it_reads(graph: dict[str, list[str]]) -> None:
    jobs = parse(json.dumps(written(graph))).dag.jobs
    seen: set[str] = set()
    for job in jobs:
        assert set(job.upstream) <= seen
        seen.add(job.name)
    assert seen == set(graph)


@settings(max_examples=40)
@given(graphs(sound=False))
def test_what_has_a_cycle_is_refused_and_nothing_else_is(graph: dict[str, list[str]]) -> None:
    cyclic = len(in_order(graph)) < len(graph)
    found = problems_of(json.dumps(written(graph)))
    assert {one.code for one in found} == ({"cycle"} if cyclic else set())


@settings(max_examples=40)
@given(graphs(sound=False))
def test_the_path_of_a_cycle_is_one(graph: dict[str, list[str]]) -> None:
    found = problems_of(json.dumps(written(graph)))
    assume(found)
    for one in found:
        if "own output" in one.message:
            name = one.message.split(" ")[2]
            assert name in graph[name]
        else:
            path = one.message.split(": ")[1].split(" → ")
            assert path[0] == path[-1]
            assert all(up in graph[down] for up, down in pairwise(path))


def _shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        pairs = [(key, _shuffled(item, order)) for key, item in value.items()]
        order.shuffle(pairs)
        return dict(pairs)
    return [_shuffled(item, order) for item in value] if isinstance(value, list) else value


_VALUES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.one_of(st.integers(-9, 9), st.text("xyz", max_size=3), st.lists(st.booleans(), max_size=2))
)  # fmt: skip


@settings(max_examples=40)
@given(graphs(sound=True), _VALUES, st.randoms(use_true_random=False))
def test_order_of_keys_and_layout_change_no_digest(
    graph: dict[str, list[str]], config: dict[str, Any], order: random.Random
) -> None:
    document = written(graph)
    document["jobs"][0]["config"] = {f"my_{key}": value for key, value in config.items()}
    plain = parse(json.dumps(document))
    other = parse("# said\n" + json.dumps(_shuffled(document, order), indent=2))
    assert plain.digest == other.digest
    assert plain.dag == other.dag


def test_another_value_is_another_digest() -> None:
    document = written({"j0": []})
    before = parse(json.dumps(document)).digest
    document["jobs"][0]["max_attempts"] = 7
    assert parse(json.dumps(document)).digest != before
