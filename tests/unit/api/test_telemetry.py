"""Metrics: every series stands from the start, and backlogs are what the rows of open work say."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.api.serving import HOME, LOOP, TWO_STEPS, Server

from noetl.ledger.database import Database
from noetl.runtime.telemetry import Metrics


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


async def values(metrics: Metrics) -> dict[str, float]:
    """Return every series by its name and labels."""
    text, media_type = await metrics.exposition()
    assert media_type.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def test_every_series_stands_at_zero_from_the_start() -> None:
    found = await values(Metrics("9.9"))
    assert found["noetl_build_info{version=9.9}"] == 1
    expected = [
        *(f"frame_backlog_total{{stage_kind={kind}}}" for kind in ("loop", "fanout", "reduce")),
        *(f"noetl_executions_ended_total{{status={word}}}" for word in ("COMPLETED", "FAILED", "CANCELLED")),
        *(f"noetl_commands_{word}_total" for word in ("issued", "claimed", "completed", "failed")),
        *(f"noetl_payload_bytes_total{{direction={way},tier=object}}" for way in ("read", "written")),
        *(f"noetl_pool_depth_highwatermark{{pool={pool}}}" for pool in ("readers", "workers")),
        "frame_p95_lease_duration", "frame_reaper_republish_total", "noetl_executions_started_total",
        "noetl_events_appended_total", "noetl_event_appends_total", "noetl_command_backlog",
    ]  # fmt: skip
    assert {name: found[name] for name in expected} == dict.fromkeys(expected, 0.0)


async def test_what_is_told_is_shown() -> None:
    clock = Clock()
    metrics = Metrics("9.9", clock=clock)
    metrics.execution_started()
    metrics.execution_ended("FAILED")
    metrics.commands("issued", 3)
    metrics.commands("claimed")
    metrics.events_appended(5)
    metrics.payload_bytes("object", "written", 100)
    metrics.watch_republished(lambda: 7)
    metrics.watch_pool("readers", lambda: 2)
    metrics.note_pool_depth("readers", 9)
    metrics.frame_ended(500.0)
    clock.now += 301
    for seconds in range(1, 101):
        metrics.frame_ended(float(seconds))
    found = await values(metrics)
    assert found["noetl_executions_started_total"] == 1
    assert found["noetl_executions_ended_total{status=FAILED}"] == 1
    assert found["noetl_commands_issued_total"] == 3
    assert found["noetl_commands_claimed_total"] == 1
    assert (found["noetl_events_appended_total"], found["noetl_event_appends_total"]) == (5, 1)
    assert found["noetl_payload_bytes_total{direction=written,tier=object}"] == 100
    assert found["frame_reaper_republish_total"] == 7
    assert found["noetl_pool_depth_highwatermark{pool=readers}"] == 9
    assert found["frame_p95_lease_duration"] == 95


async def test_two_processes_in_one_do_not_share_metrics() -> None:
    one, other = Metrics("1"), Metrics("2")
    one.execution_started()
    assert (await values(other))["noetl_executions_started_total"] == 0


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


async def test_requests_are_counted_by_the_template_of_their_route(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    await server.call("GET", f"/api/executions/{name}", status=200)
    async with server.session.get(f"{server.url}/metrics") as answer:
        text = await answer.text()
    assert 'route="/api/executions/{execution_id}"' in text
    assert name not in text
    assert re.search(r'noetl_http_request_duration_seconds_count\{.*route="/api/execute",status="201"\} 1.0', text)
