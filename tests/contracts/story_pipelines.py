"""The whole story of pipelines, people and what is around them: every way their rows change."""

from __future__ import annotations

from typing import Any

from noetl.kernel.ledger.transition import Transition
from noetl.testing.samples.executions import joined, one, token
from noetl.testing.samples.pipelines import Piped, named

from .story_alerts import some_alerts
from .story_changes import some_changes
from .story_lineage import some_lineage
from .story_pins import some_pins
from .story_queries import some_queries
from .story_schedules import some_schedules
from .story_views import some_views


def whole_story(dag: Piped) -> list[Transition]:
    """Every way the rows of a pipeline change, one after another."""
    held = [token() for _ in range(4)]
    done = {
        "outputs": [{"output": 0, "dataset_uuid": dag.dataset, "partition_key": "day=1", "version": 1, "rows": 5}],
        "cursors": [dag.cursor("day=a", 3), dag.cursor("day=x", 1)],
    }
    logs = dag.drafts.payload("cd" * 32)
    big = dag.created("big", context={"inputs": [{"alias": "o"}]}, payload_ref=dag.drafts.payload("ef" * 32))
    return [
        dag.requested(),
        dag.deployed(),
        dag.moved("dag.build_failed", error="no Java"),
        dag.moved("dag.ready"),
        dag.moved("dag.activated"),
        dag.deployed(2, name="orders"),
        dag.moved("dag.ready", 2),
        dag.moved("dag.activated", 2, previous=1),
        dag.moved("dag.rolled_back", 1, previous=2),
        dag.deployed(2),
        dag.created("a"),
        big,
        dag.claimed("a", held[0].upper(), room=2),
        dag.task(
            "a", "task.started", dag.fence("a", 1, held[0]), meta={"application_id": "app-1", "job_tag": "noetl-a-1"}
        ),
        dag.task(
            "a",
            "task.attempt_failed",
            dag.fence("a", 1, held[0]),
            meta={"delay_seconds": -0.1234565, "error_kind": "user"},
            error="division by zero",
            payload_ref=logs,
        ),
        dag.claimed("a", held[1], 2, seconds=-1.0),
        dag.task("a", "task.abandoned", dag.fence("a", 2, held[1], "expired"), meta={"attempt": 2}),
        dag.claimed("a", held[2], 3, seconds=12.5),
        dag.task("a", "task.cancel_requested", dag.fence("a", mode="open")),
        joined(
            dag.task("a", "task.completed", dag.fence("a", 3, held[2]), meta={"attempt": 3}, context=done),
            dag.partition("day=1"),
            dag.schema("first", "day", "amount"),
            dag.state("watermark", {"ü": 1e-7, "seen": [1, 2.5, None, True]}),
        ),
        dag.state("watermark", None),
        dag.schema("evolved", "day", "amount", "city"),
        dag.partition("day=1", version=2),
        dag.partition("day=1", "partition.dropped", version=3),
        dag.partition("day=1/city=a|b", version=1),
        dag.task(
            "big", "task.skipped", meta={"as_task": dag.task_id("a")}, context={"cursors": [dag.cursor("day=a", 2)]}
        ),
        dag.created("c"),
        dag.task("c", "task.cancelled", dag.fence("c", 0, mode="free"), meta={"attempt": 0}, error="rolled back"),
        dag.task("c", "task.retried", dag.fence("c", mode="ended"), meta={"extra_attempts": 2}),
        dag.claimed("c", held[3]),
        dag.task("c", "task.failed", dag.fence("c", 1, held[3]), error="refused", payload_ref=logs),
        *some_people(dag),
        *some_schedules(dag),
        *some_queries(dag),
        *some_pins(dag),
        *some_alerts(dag),
        *some_changes(dag),
        *some_lineage(dag),
        *some_views(dag),
        one(dag.drafts.execution(dag.execution_id, "execution.completed")),
    ]


def some_people(dag: Piped) -> list[Transition]:
    ann, bob, readers = ({"user_id": named("ann")}, {"user_id": named("bob")}, {"role_id": named("readers")})
    return [
        dag.people(("org.created", {"name": "Care"}), ("org.created", {"name": "Care Ltd"})),
        dag.people(("org.settings_changed", {}), context={"settings": {"ü": [1.5, None]}}),
        dag.people(
            ("user.added", {**ann, "email": "ann@example.org", "role": "reader", "external_id": "7"}),
            ("user.added", {**bob, "email": "bob@example.org", "role": "writer"}),
            ("user.role_changed", {**ann, "role": "admin"}),
            ("role.created", {**readers, "slug": "readers", "name": "Readers"}),
            ("role.granted", {**readers, **ann}),
            ("role.granted", {**readers, **bob}),
            ("role.granted", {"role_id": named("gone"), **ann}),
            ("role.revoked", {"role_id": named("gone"), **ann}),
        ),
        dag.people(("user.removed", bob)),
    ]


def what_seldom_happens(dag: Piped) -> list[Transition]:
    """Say again, and otherwise, what stands already: a version with other pointers, a role's name, a cursor, a retry."""
    version = {"dag_version_id": dag.version(2), "dag": dag.dag}
    digests = {"bundle_digest": "ab" * 32, "code_digest": "", "yaml_hash": "y2"}
    gone = {"dataset_uuid": dag.dataset, "dataset_version": named("gone"), "generation": named("gone/g")}

    def pointing(**pointers: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        fields = {"context": {"pointers": pointers}, "payload_ref": dag.drafts.payload()}
        return "dag.version_created", {**version, **digests}, fields

    return [
        dag.deployed(2, job_hash="h2"),
        dag.of_dag(pointing(**{dag.dataset: named("other"), named("second"): named("second/g")})),
        dag.of_dag(pointing(**{dag.dataset: named("other")})),
        dag.created("d"),
        dag.created("e"),
        dag.task("d", "task.skipped", meta={"as_task": dag.task_id("a")}, context=_reached(dag, **{"day=d": 1})),
        dag.task("e", "task.completed", context=_reached(dag, **{"day=d": 2})),
        dag.task("d", "task.retried", meta={"extra_attempts": 1}),
        dag.task("d", "task.skipped", meta={"as_task": dag.task_id("a")}, context=_reached(dag, **{"day=d": 3})),
        dag.task("c", "task.retried", meta={"extra_attempts": 1}),
        dag.people(("role.created", {"role_id": named("readers"), "slug": "readers", "name": "All readers"})),
        dag.of_dag(("generation.retired", {**gone, "reason": "said again"}, {})),
    ]


def _reached(dag: Piped, **versions: int) -> dict[str, Any]:
    return {"cursors": [dag.cursor(key, version) for key, version in versions.items()]}
