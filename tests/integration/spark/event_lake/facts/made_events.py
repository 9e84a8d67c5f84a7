"""Events written by hand: a day of work in which everything happens that seldom does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from noetl.model.catalogue import event_type
from noetl.model.event import Event
from noetl.model.ids import snowflake_at
from noetl.model.payload_ref import PayloadRef, payload_uri

DAY = datetime(2026, 3, 1, 10, tzinfo=UTC)
RUN = snowflake_at(DAY)
EMISSION = snowflake_at(DAY + timedelta(minutes=5))
ROOT = 77
T1, T2, T3 = (
    "00000000-0000-0000-0000-00000000000a",
    "00000000-0000-0000-0000-00000000000b",
    "00000000-0000-0000-0000-00000000000c",
)


class Writing:
    """Gives events their places."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._positions = count(1)
        self._versions: dict[str, int] = {}

    def say(self, at: float, stream: str, kind: str, execution: int = RUN, **fields: Any) -> None:
        """Write an event so many seconds after the day's work began."""
        known = event_type(kind)
        assert known is not None
        self._versions[stream] = version = self._versions.get(stream, 0) + 1
        position = next(self._positions)
        moment = DAY + timedelta(seconds=at)
        self.events.append(
            Event(
                position, "t", "made", execution, stream, known.aggregate, stream, kind, known.schema_name,
                known.version, moment, "tests", stream_version=version, shard=3, position=position, ingest_time=moment,
                **fields,
            )
        )  # fmt: skip

    def run(self, at: float, kind: str, **fields: Any) -> None:
        """Write an event of the playbook's run."""
        self.say(at, f"execution/{RUN}", kind, **fields)

    def frame(self, at: float, word: str, **fields: Any) -> None:
        """Write an event of its one frame."""
        self.say(
            at, f"execution/{RUN}/frame/9", f"frame.{word}", node_name="load", stage_id=5, frame_id=9, loop_id=4, **fields
        )  # fmt: skip

    def task(self, at: float, task_id: str, word: str, **fields: Any) -> None:
        """Write an event of a task."""
        self.say(at, f"task/{task_id}", f"task.{word}", EMISSION, node_name="daily", **fields)


def reference(digit: str, size: int) -> PayloadRef:
    """Return a reference to a payload of that size."""
    digest = digit * 64
    return PayloadRef(
        uri=payload_uri("t", "made", digest), sha256=digest, media_type="x", bytes=size, stored_sha256=digest
    )


def made_events() -> list[Event]:
    """Return the events of the day."""
    told = Writing()
    _playbook(told)
    _tasks(told)
    _others(told)
    return told.events


def _playbook(told: Writing) -> None:
    slot: dict[str, Any] = {"node_name": "load", "stage_id": 5, "loop_id": 4, "command_id": "lo/ad/1/0"}
    told.run(0, "execution.requested", meta={"path": "etl/load", "version": 2, "requested_by": "eva"}, catalog_id="c")
    told.run(1, "playbook.initialized", catalog_id="c")
    told.run(1, "step.entered", node_name="lo/ad", meta={"run": 1}, loop_id=4, stage_id=5)
    told.run(1, "command.issued", **slot, meta={"tool_kind": "spark", "attempt": 1, "worker": "w1"})
    told.say(1, f"execution/{RUN}/loop/4", "loop.started", node_name="lo/ad", loop_id=4, payload_ref=reference("a", 100),
             meta={"collection_size": 10, "mode": "parallel"})  # fmt: skip
    told.frame(2, "dispatched", meta={"attempt": 1, "worker": "w1", "row_count": 10, "frame_index": 0},
               payload_ref=reference("a", 100), command_id="lo/ad/1/0", current_index=0)  # fmt: skip
    told.frame(5, "abandoned", meta={"attempt": 1})
    told.say(5, f"execution/{RUN}/command/1", "command.abandoned", command_id="lo/ad/1/0", meta={"attempt": 1})
    told.say(
        6, f"execution/{RUN}/command/1", "command.claimed", command_id="lo/ad/1/0", meta={"attempt": 2, "worker": "w2"}
    )
    told.say(6, f"execution/{RUN}/command/1", "command.started", command_id="lo/ad/1/0",
             meta={"attempt": 2, "application_id": "app-7", "job_tag": "x"})  # fmt: skip
    told.frame(7, "dispatched", meta={"attempt": 2, "worker": "w2", "row_count": 10}, command_id="lo/ad/1/0")
    told.frame(8, "attempt_failed", meta={"attempt": 2, "row_count": 10}, error="no luck")
    told.frame(8, "dispatched", meta={"attempt": 3, "worker": "w2", "row_count": 10}, command_id="lo/ad/1/0")
    told.frame(9, "checkpointed", meta={"attempt": 3})
    told.frame(10, "committed", meta={"attempt": 3, "row_count": 10, "failed_count": 1}, payload_ref=reference("b", 50))
    told.run(10.5, "command.completed", **slot, meta={"attempt": 2, "duration_ms": 4200.0})
    told.say(11, f"execution/{RUN}/loop/4", "loop.done", node_name="lo/ad", loop_id=4,
             result={"status": "error", "context": {"total": 10, "completed": 9, "failed": 1}})  # fmt: skip
    told.run(11, "step.exited", node_name="lo/ad", meta={"run": 1}, status="completed")
    told.run(11, "step.entered", node_name="wait", meta={"run": 1})
    told.run(11, "command.issued", node_name="wait", command_id="wait/1/0", meta={"tool_kind": "http"})
    told.say(
        12, f"execution/{RUN}/command/2", "command.claimed", command_id="wait/1/0", meta={"attempt": 1, "worker": "w2"}
    )
    told.run(20, "execution.cancelled", meta={"by": "eva"}, error="enough")
    told.say(21, f"execution/{RUN}/command/2", "command.abandoned", command_id="wait/1/0", meta={"attempt": 1})


def _tasks(told: Writing) -> None:
    told.say(
        300, f"execution/{EMISSION}", "execution.requested", EMISSION, meta={"path": "dag/shop", "kind": "emission"}
    )
    for number, task in enumerate((T1, T2, T3)):
        told.task(
            301,
            task,
            "created",
            meta={"dag": "shop", "job": "daily", "runtime": "spark", "partition_key": f"d={number}"},
        )
        told.task(302, task, "claimed", meta={"attempt": 1, "worker": "w"})
        told.task(303, task, "started", meta={"attempt": 1, "application_id": "app-8"})
    told.task(305, T3, "attempt_failed", meta={"attempt": 1, "error_kind": "defect"}, error="boom")
    told.task(306, T3, "claimed", meta={"attempt": 2, "worker": "w"})
    # The first two tell what stands afterwards, as commits once did; of the third, the commits before are on other days.
    for task, version, rows, dataset, brought in (
        (T1, 1, 10, "u1", {}),
        (T2, 2, 25, "u1", {}),
        (T2, 8, 104, "u2", {"rows_added": 4, "bytes_added": 40}),
    ):
        told.say(308, f"partition/{dataset}", "partition.committed", EMISSION, node_name="daily",
                 payload_ref=reference("c", 9), meta={"task_id": task, "dataset_uuid": dataset, "version": version,
                 "rows": rows, "bytes": rows * 10, "update": "append"} | brought)  # fmt: skip
    for task, rows in ((T1, 10), (T2, 29)):
        told.task(308, task, "completed", meta={"attempt": 1, "rows": rows, "bytes": rows * 10},
                  context={"metrics": {"rows": rows, "seconds": 4.0, "batch": 2}})  # fmt: skip


def _others(told: Writing) -> None:
    told.say(399, "dag/shop", "dag.rolled_back", ROOT, meta={"dag_version_id": "v1", "previous": "v2", "by": "cli/eva"})
    told.say(400, "dag/shop", "dataset.registered", ROOT,
             meta={"dataset_uuid": "u1", "name": "sales", "dag": "shop", "job": "daily", "output": 0, "published": True})  # fmt: skip
    told.say(401, "people", "user.added", ROOT, meta={"user_id": "u-9", "email": "e@x", "role": "reader"})
    for engine, milliseconds in (("duckdb", 250), ("spark", 2000)):
        told.say(402, f"query/{engine}", "query.answered", ROOT, meta={"asked_by": "eva", "engine": engine, "rows": 5,
                 "sql_sha256": "0", "milliseconds": milliseconds, "bytes": 100})  # fmt: skip
    told.say(403, "order/1", "business.order.placed", ROOT, meta={"total": 3})
