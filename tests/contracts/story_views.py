"""The part of the whole story that is about streaming views: versions that are built, run, swapped and dropped."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.mark import Mark
from noetl.testing.samples.pipelines import Piped, named


def some_views(dag: Piped) -> list[Transition]:
    """One view with versions that give way to each other, one that fails and goes on, one that is dropped."""
    first, second, third = named("v1").upper(), named("v2"), named("v3")
    told = {"attempt": 1, "worker": "w1", "lease_token": named("lease").upper(), "lease_seconds": 30.5}
    return [
        said(dag, "frames", *deployed("frames", first, 1, by="ann")),
        said(dag, "frames", ("view.deployed", {**deployed("frames", first, 7)[0][1], "digest": "other"})),
        said(dag, "frames", ("view.claimed", {"version_id": first.lower(), **told})),
        said(
            dag,
            "frames",
            ("view.attempt_failed", {"version_id": first, "attempt": 1, "delay_seconds": 1.25}),
            error="no Java",
        ),
        said(dag, "frames", ("view.claimed", {"version_id": first, **told, "attempt": 2})),
        said(dag, "frames", ("view.activated", {"version_id": first, "mark": Mark.zero().token()})),
        said(dag, "frames", ("view.released", {"version_id": first, "attempt": 1})),
        said(dag, "frames", *deployed("frames", second, 1), payload_ref=dag.drafts.payload("ab" * 32)),
        said(dag, "frames", *deployed("frames", third, 2)),
        said(dag, "frames", ("view.claimed", {"version_id": third, **told})),
        said(dag, "frames", ("view.released", {"version_id": third, "attempt": 1})),
        said(dag, "frames", ("view.activated", {"version_id": third, "mark": Mark.zero().token()})),
        said(dag, "frames", ("view.released", {"version_id": first, "attempt": 2}), error="too late"),
        said(dag, "frames", ("view.claimed", {"version_id": named("nobody"), **told})),
        said(dag, "queue", *deployed("queue", named("q1"), 1)),
        said(dag, "queue", ("view.dropped", {"view": "queue", "by": "bob"})),
        said(dag, "queue", *deployed("queue", named("q2"), 2)),
    ]


def deployed(view: str, version_id: str, build: int, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    """Say that a version is to be built."""
    meta = {"view": view, "version_id": version_id, "digest": "ab" * 32, "build": build, "sink": "postgres"}
    return [("view.deployed", {**meta, "target": Mark.zero().token(), **more})]


def said(dag: Piped, view: str, *facts: tuple[str, dict[str, Any]], **fields: Any) -> Transition:
    """Say something in the stream of a view."""
    drafts = []
    for kind, meta in facts:
        context = {"context": {"document": {"name": view, "ü": [1.5, None]}}} if kind == "view.deployed" else {}
        drafts.append(dag.event(f"view/{view}", kind, meta, node_name=None, **context, **fields))
    return Transition((Append(drafts[0].stream, drafts),))
