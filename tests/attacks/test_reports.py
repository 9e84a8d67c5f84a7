# ruff: noqa: F811 - fixtures are named by their parameters
"""Workers that hold a good lease and report what cannot be: refused before anything is recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.api.conftest import engine, payloads, readers, serve, server  # noqa: F401 - fixtures
from tests.integration.api.serving import HOME, LOOP, TWO_STEPS, Server

from noetl.engine.dispatch.grants import CommandGrant, FrameGrant, FrameReport
from noetl.engine.dispatch.open_work.memory import MemoryOpenWork
from noetl.engine.dispatch.open_work.port import OpenStage
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import EventInvalid, LeaseLost, ReportRefused, Unavailable
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.ledger.transition import Transition
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.testing.attacks.reports import MISSING, checkpoints, command_reports, frame_reports
from noetl.testing.engines.memory import SCOPE, MemoryPlaybooks, open_memory_playbooks

TOTAL = 5


def lease(grant: CommandGrant) -> dict[str, Any]:
    """Return the proof of a command as a worker sends it."""
    proof = {"execution_id": str(grant.execution_id), "command_id": grant.command_id}
    return {**proof, "attempt": grant.attempt, "token": grant.token}


def proof(frame: FrameGrant) -> dict[str, Any]:
    """Return the proof of a frame as a worker sends it."""
    return {"execution_id": str(frame.execution_id), "attempt": frame.attempt, "token": frame.token}


async def counts(server: Server, stage_id: int) -> tuple[int, int]:
    """Return how many rows of a stage are done, and how many failed."""
    stage = await server.call("GET", f"/api/stages/{stage_id}", status=200)
    return stage["rows_done"], stage["rows_failed"]


@pytest.mark.service
async def test_forged_reports_are_refused_with_the_field_and_change_nothing(
    server: Server,
    payloads: MemoryPayloadStore,
) -> None:
    """INV-190."""
    await server.register(LOOP)
    await server.start("tests/loop")
    dispatch = server.services.engine.dispatch(HOME)
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    stored = await payloads.store(HOME, b"12345", "application/json")
    place = f"/api/frames/{frame.frame_id}"
    common: dict[str, Any] = {"lease": proof(frame), "worker_id": "w1"}

    async def refused(path: str, body: dict[str, Any], field: str) -> None:
        problem = await server.call("POST", path, {**common, **body}, status=422)
        assert (problem["code"], problem["detail"].startswith(f"{field} is ")) == ("report_refused", True), problem
        assert len(problem["detail"]) < 1_000

    for field, report in frame_reports(HOME, stored, frame.row_count, frame.first_index):
        await refused(f"{place}/commit", {"command": lease(slot), "report": report, "take_next": True}, field)
    short = {"command": lease(slot), "report": {"row_count": 1}, "take_next": False}
    await refused(f"{place}/commit", short, "report.row_count")
    stranger = {"command": lease(slot), "report": {"row_count": 2}, "worker_id": "another"}
    await refused(f"{place}/commit", stranger, "worker_id")
    for error, tries, field in (({"message": "no"}, 1, "max_attempts"), ({"message": 1}, 3, "error.message")):
        await refused(f"{place}/fail", {"error": error, "max_attempts": tries}, field)
    body = {"lease": proof(frame), "cursor": {"done": 1}}
    await server.call("POST", f"{place}/checkpoint", body, status=204)
    for field, cursor in checkpoints(HOME, 1, frame.row_count):
        problem = await server.call("POST", f"{place}/checkpoint", {**body, "cursor": cursor}, status=422)
        assert problem["detail"].startswith(f"{field} is "), problem
    end = {
        "lease": lease(slot),
        "worker_id": "w1",
        "report": {"command_id": slot.command_id, "attempt": 1, "status": "ok"},
    }
    made_up = {**end, "report": {**end["report"], "data": [1, 2]}}  # type: ignore[dict-item]
    problem = await server.call("POST", "/api/commands/complete", made_up, status=422)
    assert problem["detail"].startswith("report.data is ")
    assert await counts(server, frame.stage_id) == (0, 0)

    good = {"command": lease(slot), "report": {"row_count": 2, "failed_count": 1}, "take_next": False}
    await server.call("POST", f"{place}/commit", {**common, **good}, status=200)
    assert await counts(server, frame.stage_id) == (1, 1)
    # The other rows were never handed out, so the loop is not over, whatever its slot says.
    problem = await server.call("POST", "/api/commands/complete", end, status=422)
    assert "3 of 5 rows were never handed out" in problem["detail"]
    rows = {"lease": lease(slot), "worker_id": "w1", "rows": msgspec.to_builtins(stored), "row_count": 1}
    problem = await server.call("POST", f"/api/stages/{frame.stage_id}/frames/dispatch", rows, status=422)
    assert "no slot of a cursor" in problem["detail"]


@pytest.mark.service
async def test_forged_ends_of_commands_are_refused_and_the_true_one_counts(server: Server) -> None:
    """INV-190."""
    await server.register(TWO_STEPS)
    execution_id = await server.start("tests/two")
    dispatch = server.services.engine.dispatch(HOME)
    (grant,) = await dispatch.claim("w1", 1, 5.0)
    body: dict[str, Any] = {"lease": lease(grant), "worker_id": "w1"}
    for field, report in command_reports(HOME, grant.command_id):
        problem = await server.call("POST", "/api/commands/complete", {**body, "report": report}, status=422)
        assert problem["detail"].startswith(f"{field} is "), problem
    good = {"command_id": grant.command_id, "attempt": 1, "status": "ok", "data": {"size": 3}}
    problem = await server.call(
        "POST", "/api/commands/complete", {**body, "report": good, "worker_id": "x"}, status=422
    )
    assert problem["detail"].startswith("worker_id is ")
    started = {"lease": lease(grant), "application_id": "app", "job_tag": "noetl-somebody-elses-1"}
    assert "job_tag" in (await server.call("POST", "/api/commands/started", started, status=422))["detail"]
    child = {"path": "tests/two", "version": None, "payload": {}, "return_step": None, "key": "k"}
    asked = {"lease": lease(grant), "child": child}
    assert "child.path" in (await server.call("POST", "/api/commands/children", asked, status=422))["detail"]
    assert (await server.call("GET", f"/api/executions/{execution_id}"))["active_steps"] == ["first"]
    await server.call("POST", "/api/commands/complete", {**body, "report": good}, status=200)
    assert (await server.call("GET", f"/api/executions/{execution_id}"))["active_steps"] == ["second"]


@pytest.mark.service
async def test_what_fails_after_a_commit_does_not_fail_its_answer(
    server: Server,
    ledger: PostgresLedger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-191."""

    def broken(transition: Transition) -> None:
        raise ValueError("a metric that cannot count this")

    await server.register(LOOP)
    await server.start("tests/loop")
    ledger.on_transition = broken
    dispatch = server.services.engine.dispatch(HOME)
    server.services.engine.work.passed_on = lambda: 1 / 0  # type: ignore[assignment, return-value]
    (slot,) = await dispatch.claim("w1", 1, 5.0)
    frame = await dispatch.next_frame(slot, "w1")
    assert frame is not None
    place, common = f"/api/frames/{frame.frame_id}", {"lease": proof(frame), "worker_id": "w1"}
    commit = {**common, "command": lease(slot), "report": {"row_count": 2}}
    await server.call("POST", f"{place}/commit", commit, status=200)
    assert await counts(server, frame.stage_id) == (2, 0)
    second = await dispatch.next_frame(slot, "w1")
    assert second is not None
    failed = {"lease": proof(second), "worker_id": "w1", "error": {"message": "no"}, "max_attempts": 3}
    await server.call("POST", f"/api/frames/{second.frame_id}/fail", failed, status=204)
    assert "what was recorded stands" in caplog.text


REFUSALS = (ReportRefused, LeaseLost, EventInvalid)
ANY = st.one_of(st.integers(-(2**65), 2**65), st.integers(-3, 8), st.none(), st.text(max_size=8), st.floats())
REFS = st.one_of(
    st.none(),
    st.builds(
        PayloadRef,
        uri=st.sampled_from([payload_uri("default", "default", MISSING), "noetl://x", ""]),
        sha256=st.sampled_from([MISSING, "x"]),
        stored_sha256=st.just(MISSING),
        media_type=st.sampled_from(["application/json", "application/vnd.apache.arrow.stream"]),
        bytes=st.integers(-5, 2**50),
        rows=st.one_of(st.none(), st.integers(-3, 9)),
    ),
)
WRONG: dict[str, st.SearchStrategy[Any]] = {
    "row_count": st.one_of(st.sampled_from([-7, 3, 999]), st.integers(-3, 9), ANY),
    "failed_count": st.one_of(st.integers(-3, 9), ANY),
    "swallowed": st.one_of(st.integers(-3, 9), ANY),
    "output": REFS,
    "ctx_writes": st.dictionaries(st.text(max_size=5), ANY, max_size=3),
    "errors": st.lists(st.dictionaries(st.sampled_from(["index", "message", "kind"]), ANY, max_size=3), max_size=3),
    "rest": REFS,
}


@st.composite
def frame_report(draw: st.DrawFn) -> FrameReport:
    """Make a report of which one or two fields may be wrong: with more, one lie would hide another."""
    some = st.lists(st.sampled_from(sorted(WRONG)), max_size=2, unique=True)
    lies = draw(st.one_of(st.just(["row_count"]), st.just(["failed_count"]), some))
    return FrameReport(**{"row_count": draw(st.integers(1, 2)), **{name: draw(WRONG[name]) for name in lies}})


FRAMES = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: forged, path: tests/forged}
workflow:
  - step: each
    loop: {in: [1, 2, 3, 4, 5], iterator: n, spec: {max_in_flight: 1, frame: {max_rows: 2}}}
    tool: {kind: noop}
"""


async def stage_of(playbooks: MemoryPlaybooks, slot: CommandGrant) -> OpenStage:
    """Return how far the stage of a slot is."""
    assert slot.loop is not None
    stage = await MemoryOpenWork(playbooks.ledger.work).stage(SCOPE, slot.execution_id, slot.loop.stage_id)
    assert stage is not None
    return stage


@settings(
    max_examples=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    st.lists(
        st.tuples(frame_report(), st.sampled_from([True, True, False]), st.sampled_from(["w1", "w1", "w1", "x"])),
        max_size=8,
    ),
    st.lists(st.dictionaries(st.sampled_from(["done", "swallowed", "set", "output", "artifacts"]), ANY), max_size=3),
)
async def test_no_report_makes_more_of_a_loop_than_it_has(
    tmp_path: Path, sent: list[tuple[FrameReport, bool, str]], cursors: list[dict[str, Any]]
) -> None:
    """INV-190: whatever is reported, the counts stay within the rows, and the answer is a grant or a refusal."""
    async with open_memory_playbooks(tmp_path) as playbooks:
        await playbooks.begin(FRAMES)
        dispatch = playbooks.engine.dispatch(SCOPE)
        (slot,) = await dispatch.claim("w1", 1, 0.0)
        assert slot.loop is not None
        frame: FrameGrant | None = None
        for report, take_next, worker in sent:
            frame = frame or await dispatch.next_frame(slot, "w1")
            if frame is None:
                break
            for cursor in cursors:
                with suppress(*REFUSALS):
                    await dispatch.checkpoint(frame, cursor)
            with suppress(*REFUSALS):
                frame = await dispatch.commit_frame(slot, frame, report, worker=worker, take_next=take_next)
            stage = await stage_of(playbooks, slot)
            assert 0 <= stage.rows_failed <= TOTAL
            assert 0 <= stage.rows_done <= stage.rows_done + stage.rows_failed <= stage.next_index <= TOTAL
        ended = CommandEnded(command_id=slot.command_id, attempt=1, status="ok")
        stage = await stage_of(playbooks, slot)
        whole = stage.next_index == TOTAL and not stage.frames_open
        try:
            await dispatch.complete(slot, ended, worker="w1", take_next=False)
            assert whole
        except (ReportRefused, Unavailable, LeaseLost):
            assert not whole
