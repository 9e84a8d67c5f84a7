"""Metrics: every series stands from the start, and backlogs are what the rows of open work say."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.api.serving import HOME, LOOP, ONE_TRY, TWO_STEPS, Server

from noetl.engine.dispatch.grants import FrameReport
from noetl.engine.plan.trigger import CommandEnded
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Append, Transition
from noetl.kernel.payloads.figures import TIERS, Figures
from noetl.runtime.metrics.process import Metrics
from noetl.runtime.metrics.roles import RoleMetrics
from noetl.runtime.metrics.worker import FarWorkerMetrics
from noetl.runtime.payloads import tiers
from noetl.testing.samples.drafts import Drafts

WORDS = ("dispatched", "committed", "failed")
FORK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: fork, path: tests/fork}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: join}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: join}]}}
  - {step: join, tool: {kind: python, code: "result = 1"}}
"""


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


async def values(metrics: Metrics | FarWorkerMetrics | RoleMetrics) -> dict[str, float]:
    """Return every series by its name and labels."""
    text, media_type = await metrics.exposition()
    assert media_type.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_every_series_stands_at_zero_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "FIGURES", Figures())  # those of this process count what its other tests did
    found = await values(Metrics("9.9"))
    assert found["noetl_build_info{version=9.9}"] == 1
    expected = [
        *(f"frame_backlog_total{{stage_kind={kind}}}" for kind in ("loop", "fanout", "reduce")),
        *(f"noetl_executions_ended_total{{status={word}}}" for word in ("COMPLETED", "FAILED", "CANCELLED")),
        *(f"noetl_execution_duration_seconds_count{{status={word}}}" for word in ("COMPLETED", "FAILED", "CANCELLED")),
        *(f"noetl_commands_{word}_total" for word in ("issued", "claimed", "completed", "failed")),
        *(f"noetl_frames_{word}_total{{stage_kind=loop}}" for word in ("dispatched", "committed", "failed")),
        *(f"noetl_rows_{word}_total" for word in ("done", "failed")),
        *(f"noetl_payload_bytes_total{{direction={way},tier={tier}}}" for way in ("read", "written") for tier in TIERS),
        *(f"noetl_pool_depth_highwatermark{{pool={pool}}}" for pool in ("readers", "workers")),
        "frame_p95_lease_duration", "frame_reaper_republish_total", "command_reaper_republish_total",
        "noetl_executions_started_total",
        "noetl_events_appended_total", "noetl_event_appends_total", "noetl_command_backlog", "noetl_command_events_total",
        "noetl_swallowed_errors_total", "projector_projected_total", "projector_batches_total",
    ]  # fmt: skip
    assert {name: found[name] for name in expected} == dict.fromkeys(expected, 0.0)


async def test_what_is_told_is_shown() -> None:
    metrics = Metrics("9.9")
    metrics.events_appended(5)
    metrics.watch_reaper(SimpleNamespace(frames_republished=7, commands_republished=2))
    metrics.watch_pool("readers", lambda: 2)
    metrics.note_pool_depth("readers", 9)
    found = await values(metrics)
    assert (found["noetl_events_appended_total"], found["noetl_event_appends_total"]) == (5, 1)
    assert (found["frame_reaper_republish_total"], found["command_reaper_republish_total"]) == (7, 2)
    assert found["noetl_pool_depth_highwatermark{pool=readers}"] == 9


async def test_frames_are_timed_over_the_last_minutes() -> None:
    clock, drafts = Clock(), Drafts(HOME, iter(range(1, 1_000)).__next__)
    metrics = Metrics("9.9", clock=clock)

    def framed(seconds: float) -> None:
        execution_id, stage_id, frame_id = drafts.mint(), drafts.mint(), drafts.mint()
        for kind in ("frame.dispatched", "frame.committed"):
            draft = drafts.frame(execution_id, stage_id, frame_id, kind)
            metrics.observe(Transition((Append(draft.stream, [draft]),)))
            clock.now += seconds if kind == "frame.dispatched" else 0

    framed(500.0)
    clock.now += 301
    for number in range(1, 101):
        framed(number / 100)
    assert round((await values(metrics))["frame_p95_lease_duration"], 2) == 0.95


async def test_work_is_counted_as_it_is_recorded(server: Server, ledger: PostgresLedger) -> None:
    metrics = Metrics("9.9")
    ledger.on_transition = metrics.observe
    await server.register(ONE_TRY)
    await server.start("tests/loop")
    dispatch = server.services.engine.dispatch(HOME)
    (slot,) = await dispatch.claim("w", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w")
    assert frame is not None
    report = FrameReport(row_count=2, failed_count=1, swallowed=3, errors=[{"message": "no"}])
    frame = await dispatch.commit_frame(slot, frame, report, worker="w", take_next=True)
    assert frame is not None
    await dispatch.fail_frame(frame, {"message": "broke"}, max_attempts=1, worker="w")
    frame = await dispatch.next_frame(slot, "w")
    assert frame is not None
    await dispatch.commit_frame(slot, frame, FrameReport(row_count=1), worker="w", take_next=False)
    ended = CommandEnded(command_id=slot.command_id, attempt=1, status="ok")
    await dispatch.complete(slot, ended, worker="w", take_next=False)
    found = await values(metrics)
    wanted = {
        "noetl_executions_started_total": 1,
        "noetl_executions_ended_total{status=FAILED}": 1,
        "noetl_execution_duration_seconds_count{status=FAILED}": 1,
        "noetl_execution_duration_seconds_bucket{le=60.0,status=FAILED}": 1,
        "noetl_commands_issued_total": 1,
        "noetl_commands_completed_total": 1,
        "noetl_command_events_total": 3,
        "noetl_frames_dispatched_total{stage_kind=loop}": 3,
        "noetl_frames_committed_total{stage_kind=loop}": 2,
        "noetl_frames_failed_total{stage_kind=loop}": 1,
        "noetl_rows_done_total": 2,
        "noetl_rows_failed_total": 3,
        "noetl_swallowed_errors_total": 3,
    }
    assert {name: found[name] for name in wanted} == wanted


async def test_a_reduce_stage_is_counted_as_the_one_piece_of_work_that_it_is(
    server: Server, ledger: PostgresLedger, database: Database
) -> None:
    clock = Clock()
    metrics = Metrics("9.9", database=database, clock=clock)
    ledger.on_transition = metrics.observe
    await server.register(FORK)
    dispatch = server.services.engine.dispatch(HOME)
    for status in ("ok", "error"):
        await server.start("tests/fork")
        clock.now += 1.1
        found = await values(metrics)
        assert found["frame_backlog_total{stage_kind=reduce}"] == 1
        (join,) = await dispatch.claim("w", 1, 5.0)
        error = None if status == "ok" else {"message": "broke", "kind": "runtime"}
        ended = CommandEnded(command_id=join.command_id, attempt=1, status=status, error=error)
        await dispatch.complete(join, ended, worker="w", take_next=False)
    clock.now += 1.1
    found = await values(metrics)
    counted = {word: found[f"noetl_frames_{word}_total{{stage_kind=reduce}}"] for word in WORDS}
    assert counted == {"dispatched": 2, "committed": 1, "failed": 1}
    assert found["frame_backlog_total{stage_kind=reduce}"] == 0


async def test_payload_bytes_are_counted_by_the_tier_that_served_or_took_them(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures()
    monkeypatch.setattr(tiers, "FIGURES", figures)
    figures.wrote("object", 100)
    figures.wrote("ipc", 80)
    figures.read("worker", "ipc", 80)
    figures.read("reducer", "ipc", 8)
    wanted = {"direction=written,tier=object": 100, "direction=written,tier=ipc": 80, "direction=read,tier=ipc": 88}
    for series in (
        await values(Metrics("1")),
        await values(FarWorkerMetrics(1)),
        await values(RoleMetrics("projector")),
    ):
        moved = {name: value for name, value in series.items() if name.startswith("noetl_payload_bytes_total")}
        assert len(moved) == 2 * len(TIERS)
        assert {name[26:-1]: value for name, value in moved.items() if value} == wanted


async def test_two_processes_in_one_do_not_share_metrics() -> None:
    one, other = Metrics("1"), Metrics("2")
    one.events_appended(1)
    assert (await values(other))["noetl_events_appended_total"] == 0


async def test_the_backlog_is_read_from_open_work_at_most_once_a_second(server: Server, database: Database) -> None:
    clock = Clock()
    metrics = Metrics("1", database=database, clock=clock)
    await server.register(LOOP)
    await server.register(TWO_STEPS)
    await server.start("tests/loop")
    await server.start("tests/two")
    found = await values(metrics)
    assert (found["frame_backlog_total{stage_kind=loop}"], found["noetl_command_backlog"]) == (3, 2)
    dispatch = server.services.engine.dispatch(HOME)
    slot = next(grant for grant in await dispatch.claim("w1", 2, 5.0) if grant.loop is not None)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    assert (await values(metrics))["frame_backlog_total{stage_kind=loop}"] == 3
    clock.now += 1.1
    found = await values(metrics)
    assert (found["frame_backlog_total{stage_kind=loop}"], found["noetl_command_backlog"]) == (2, 0)
    await dispatch.fail_frame(frame, {"message": "broke"}, max_attempts=3, worker="w1")
    clock.now += 1.1
    assert (await values(metrics))["frame_backlog_total{stage_kind=loop}"] == 3


async def test_a_database_that_is_away_does_not_hide_the_other_metrics() -> None:
    metrics = Metrics("1", database=Database("postgresql://nobody@127.0.0.1:1/none"))
    found = await values(metrics)
    assert found["noetl_backlog_read_failures_total"] == 1
    assert found["frame_backlog_total{stage_kind=loop}"] == 0


async def test_the_metrics_of_a_fresh_server_are_small(server: Server) -> None:
    """INV-165: what is asked for every few seconds is under 60 KB before anything ran, and each family has its series."""
    for _ in range(2):  # the second has the request for the first
        async with server.session.get(f"{server.url}/metrics") as answer:
            text = await answer.text()
    assert len(text.encode()) < 60_000
    families = {one.name: one for one in text_string_to_metric_families(text)}
    kept_elsewhere = {"noetl_jobs", "projection_store_lag_events", "projection_store_up"}
    assert {name for name, one in families.items() if not one.samples} == kept_elsewhere


async def test_requests_are_counted_by_the_template_of_their_route(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await server.call("GET", f"/api/executions/{name}", status=200)
    async with server.session.get(f"{server.url}/metrics") as answer:
        text = await answer.text()
    assert 'route="/api/executions/{execution_id}"' in text
    assert name not in text
    # A route that nobody has called is no series: there are many, and each has its buckets.
    assert 'route="/api/events"' not in text
    assert re.search(r'noetl_http_request_duration_seconds_count\{.*route="/api/execute",status="201"\} 1.0', text)
