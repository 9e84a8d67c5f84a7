"""Explanations are true, name their evidence, and need nothing but the ledger."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.plan.playing import EXECUTION_ID, Play

from noetl.cli.executions.why import why as command
from noetl.engine.dispatch.drafts import Drafting, command_stream
from noetl.engine.dispatch.why.explanation import Explanation, why
from noetl.engine.plan.trigger import Cancelled, Tally
from noetl.errors import InputError, NotFound
from noetl.kernel.ledger.memory import MemoryLedger
from noetl.kernel.ledger.port import Ledger
from noetl.model.event import Event
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope, frame_stream
from noetl.testing.samples.drafts import PRODUCER, Drafts
from noetl.testing.samples.runs import framed_run

SCOPE = Scope("default", "default")
FRAME = 1_162_849_153_263_398_913
FRAME_TEXT = f"in frame {FRAME}"

CLOCK = itertools.count(1_800_000_000_000)
IDS = SnowflakeGenerator(27, lambda: next(CLOCK))


class Recorded:
    """A play whose decisions stand in a ledger, with what workers and the reaper did beside it."""

    def __init__(self, play: Play, ledger: Ledger | None = None) -> None:
        self.play = play
        self.ledger = ledger or MemoryLedger()
        self._drafting = Drafting(lambda count: [IDS.mint() for _ in range(count)], PRODUCER)
        self._written = 0

    async def keep(self) -> Recorded:
        """Record what was decided since the last time."""
        facts = self.play.facts[self._written :]
        self._written = len(self.play.facts)
        for append in self._drafting.appends(SCOPE, EXECUTION_ID, facts, expected_version=None):
            await self.ledger.append(append.stream, append.drafts)
        return self

    async def lease(self, kind: str, command_id: str, error: str | None = None, **meta: Any) -> None:
        issued = next(event for event in await self.events("command.issued") if event.command_id == command_id)
        stream = command_stream(SCOPE, EXECUTION_ID, issued.event_id)
        await self._one(stream, kind, f"command/{command_id}", command_id=command_id, meta=meta, error=error)

    async def frame(
        self, kind: str, error: str | None = None, *, result: dict[str, Any] | None = None, **meta: Any
    ) -> None:
        run = next(run for run in self.play.state.active.values() if run.loop)
        await self._one(
            frame_stream(SCOPE, EXECUTION_ID, FRAME), kind, f"frame/{FRAME}", node_name="each", stage_id=run.stage_id,
            loop_id=run.loop_id, frame_id=FRAME, current_index=0, error=error, result=result or {},
            meta={"row_count": 5, "frame_index": 0, **meta},
        )  # fmt: skip

    async def _one(self, stream: Any, kind: str, aggregate_id: str, **fields: Any) -> None:
        key = f"{kind}/{IDS.mint()}"
        draft = self._drafting.one(SCOPE, stream, EXECUTION_ID, kind, aggregate_id, idempotency_key=key, **fields)
        await self.ledger.append(stream, [draft])

    async def events(self, kind: str) -> list[Event]:
        return [event async for event in self.ledger.read_execution(SCOPE, EXECUTION_ID) if event.event_type == kind]

    async def why(self, **options: Any) -> Explanation:
        await self.keep()
        return await why(self.ledger, None, self.play.plan, SCOPE, EXECUTION_ID, **options)


def texts(explanation: Explanation, topic: str) -> list[str]:
    return [said.text for said in explanation.sentences if said.topic == topic]


def ids(events: list[Event]) -> set[int]:
    return {event.event_id for event in events}


FORK = """
{step: start, set: {ctx.n: 1}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c, when: false}]}}
{step: a, next: {arcs: [{step: join}]}}
{step: b, next: {arcs: [{step: join}]}}
{step: c, next: {arcs: [{step: join}]}}
{step: join}
"""


async def test_an_execution_says_what_it_waits_for() -> None:
    recorded = await Recorded(Play(FORK).ok("start", "a")).keep()
    said = await recorded.why()
    assert said.status == "RUNNING"
    assert texts(said, "status")[0].startswith(f"execution {EXECUTION_ID} of demo/it is running since ")
    pending, barrier = texts(said, "waits")
    assert pending.startswith("step b (run 1) waits for a worker since ")
    assert barrier == "step join was arrived at from a and waits for b, which may still lead to it."
    await recorded.lease("command.claimed", "b/1/0", attempt=1, worker="w1")
    assert texts(await recorded.why(), "waits")[0].startswith("step b (run 1) is worked on by w1, attempt 1, since ")
    await recorded.lease("command.abandoned", "b/1/0", attempt=1, worker="w1")
    assert texts(await recorded.why(), "waits")[0].endswith(", when attempt 1 was lost with w1.")
    await recorded.lease("command.claimed", "b/1/0", attempt=2, worker="w2")
    await recorded.lease("command.attempt_failed", "b/1/0", "full", attempt=2, delay_seconds=5.0)
    expected = ", when attempt 2 was given back: full and may be taken again after 5 s."
    assert texts(await recorded.why(), "waits")[0].endswith(expected)


async def test_a_command_that_was_given_to_spark_is_still_worked_on_by_its_holder() -> None:
    recorded = await Recorded(Play("{step: a}")).keep()
    await recorded.lease("command.claimed", "a/1/0", attempt=1, worker="w1")
    await recorded.lease("command.started", "a/1/0", attempt=1, application_id="app-1", job_tag="t-1")
    assert texts(await recorded.why(), "waits")[0].startswith("step a (run 1) is worked on by w1, attempt 1, since ")


async def test_a_step_that_is_suspended_names_its_child() -> None:
    said = await Recorded(Play("{step: a, tool: {kind: playbook, path: demo/child}}")).why()
    assert texts(said, "waits")[0].endswith(" until execution 1000 ends.")


EACH = "{step: each, loop: {in: '{{ range(20) | list }}', iterator: i, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 5}}}, next: {arcs: [{step: b, when: \"{{ event.name == 'loop.done' }}\"}]}}\n{step: b}"


async def test_a_loop_says_how_far_it_is() -> None:
    recorded = await Recorded(Play(EACH)).keep()
    await recorded.lease("command.claimed", "each/1/0", attempt=1, worker="w1")
    await recorded.frame("frame.dispatched", attempt=1, worker="w1")
    said = await recorded.why()
    loop, slots = texts(said, "waits")
    assert loop == (
        "step each (run 1) works off 20 rows (parallel): 1 frame begun, 0 committed, 0 failed, 1 under way, 0 free again;"
        " 0 rows done, 0 failed so far."
    )
    assert slots == "step each: 2 slots open, 1 by w1, 1 waiting for a worker."
    assert texts(said, "frame")[0].startswith(f"frame {FRAME} of step each is worked on by w1, attempt 1, since ")
    await recorded.frame("frame.committed", attempt=1, failed_count=2)
    said = await recorded.why()
    assert texts(said, "waits")[0].endswith(
        "1 committed, 0 failed, 0 under way, 0 free again; 3 rows done, 2 failed so far."
    )


async def test_rows_that_failed_are_named_with_their_frame_and_reason() -> None:
    recorded = await Recorded(Play(EACH)).keep()
    await recorded.frame("frame.dispatched", attempt=1, worker="w1")
    problems = [{"index": n, "kind": "unknown", "message": f"ValueError: {n}\n  again"} for n in (3, 1)]
    result = {"status": "error", "errors": problems}
    await recorded.frame("frame.committed", attempt=1, failed_count=3, result=result)
    expected = [
        f"row 1 of step each failed in frame {FRAME}: ValueError: 1 again.",
        f"row 3 of step each failed in frame {FRAME}: ValueError: 3 again.",
        "1 more of the rows of step each failed; `noetl why EXECUTION FRAME` tells of a frame.",
    ]
    assert texts(await recorded.why(), "row") == texts(await recorded.why(step="each"), "row") == expected
    recorded.play.rows("each", rows_done=17, rows_failed=3, problem="row 1: ValueError: 1 again")
    said = await recorded.why()
    assert texts(said, "row") == texts(await recorded.why(step="each"), "row") == expected
    assert ids(await recorded.events("frame.committed")) == {
        one for said in said.sentences if said.topic == "row" and FRAME_TEXT in said.text for one in said.event_ids
    }


async def test_a_frame_that_failed_as_a_whole_names_all_its_rows() -> None:
    recorded = await Recorded(Play(EACH)).keep()
    await recorded.frame("frame.dispatched", attempt=3, worker="w1")
    await recorded.frame("frame.failed", "its worker w1 was lost", attempt=3)
    (said,) = texts(await recorded.why(step="each"), "row")
    assert said == f"rows 0 to 4 of step each failed in frame {FRAME}: its worker w1 was lost."


async def test_of_many_rows_that_failed_the_first_are_told() -> None:
    recorded = await Recorded(Play(EACH)).keep()
    await recorded.frame("frame.dispatched", attempt=1, worker="w1")
    problems = [{"index": n, "message": "x" * 2_000} for n in range(9, -1, -1)]
    await recorded.frame("frame.committed", attempt=1, failed_count=10, result={"errors": problems})
    told = texts(await recorded.why(), "row")
    assert [text.partition(" of ")[0] for text in told] == [*(f"row {n}" for n in range(5)), "5 more"]
    assert len(told[0]) < 600


async def test_a_failure_names_its_step_and_events_and_what_was_stopped() -> None:
    recorded = Recorded(Play(FORK).ok("start").fail("b", "no such table"))
    said = await recorded.why()
    assert (said.status, texts(said, "failure")) == (
        "FAILED",
        ["It failed because step b failed in its run 1: no such table."],
    )
    proof = next(one for one in said.sentences if one.topic == "failure")
    failed = [event for event in await recorded.events("command.failed") if event.node_name == "b"]
    assert ids(failed) | ids(await recorded.events("playbook.failed")) <= set(proof.event_ids)
    assert texts(said, "stopped") == ["Because of that these were stopped: a."]


async def test_a_cancellation_says_who_and_why() -> None:
    play = Play("{step: a}")
    play.take(Cancelled(reason="enough", by="ann"))
    said = await Recorded(play).why()
    assert texts(said, "status")[0].endswith(" by ann.")
    assert texts(said, "failure") == ["The reason: enough."]


async def test_errors_that_were_passed_over_are_told_by_step() -> None:
    play = Play(EACH)
    play.end("each", swallowed=1)
    play.end("each", tally=Tally(rows_done=17, rows_failed=3))
    play.ok("b")
    said = await Recorded(play).why()
    assert texts(said, "swallowed") == ["step each went on in spite of 4 errors."]
    assert said.status == "COMPLETED"


async def test_a_rerun_and_a_child_say_where_they_come_from() -> None:
    play = Play("{step: a}\n{step: b}", rerun_of=7, from_step="b", parent_execution_id=5, parent_command_id="x/1/0")
    said = await Recorded(play).why()
    assert texts(said, "rerun") == ["It runs execution 7 again, from step b on."]
    assert texts(said, "parent") == ["It was started by execution 5, whose command x/1/0 waits for it."]


RETRIED = """
{step: a, set: {ctx.n: 1, ctx.m.k: 2}, next: {arcs: [{step: b, when: '{{ workload.b }}'}, {step: c}]}}
{step: b}
{step: c, next: {arcs: [{step: a, when: '{{ ctx.n > 1 }}'}, {step: d}]}}
{step: d, spec: {policy: {admit: {rules: [{else: {then: {allow: false}}}]}}}}
"""


async def test_a_step_says_why_it_ran_and_how_often_it_was_tried() -> None:
    play = Play(RETRIED, workload={"b": False})
    recorded = await Recorded(play).keep()
    await recorded.lease("command.claimed", "a/1/0", attempt=1, worker="w1")
    await recorded.lease("command.abandoned", "a/1/0", attempt=1, worker="w1")
    await recorded.lease("command.claimed", "a/1/0", attempt=2, worker="w2")
    play.ok("a", attempt=2, duration_ms=12.4, tries=[{"task": "get", "tries": 3, "errors": ["timeout"]}])
    said = await recorded.why(step="a")
    assert texts(said, "cause")[0].endswith(" because the execution begins there.")
    attempts = texts(said, "attempt")
    assert [text.split(" at ")[0] for text in attempts] == [
        "run 1: attempt 1 was taken by w1", "run 1: attempt 1 was lost", "run 1: attempt 2 was taken by w2",
    ]  # fmt: skip
    assert texts(said, "tries") == ["run 1: task get was tried 3 times, with problems of kind timeout."]
    assert texts(said, "ended") == ["run 1 ended well after 12 ms."]
    assert texts(said, "set") == ["run 1 set ctx.m.k, ctx.n."]
    assert texts(said, "routes") == ["run 1 took arc 1 to c; arc 0 to b (when {{ workload.b }}) did not hold."]
    said = await recorded.why(step="c")
    expected = "because arc 1 to c of step a was taken, after arc 0 to b (when {{ workload.b }}) did not hold."
    assert texts(said, "cause")[0].endswith(expected)
    assert ids(await recorded.events("step.exited")) <= set(said.sentences[0].event_ids)
    assert texts(said, "open") == ["run 1 has not ended."]


async def test_a_step_says_why_it_was_skipped_or_never_entered() -> None:
    recorded = Recorded(Play(RETRIED, workload={"b": False}).ok("a", "c"))
    assert texts(await recorded.why(step="d"), "skipped") == ["run 1 was skipped: admission rule 0 does not allow it."]
    said = await recorded.why(step="b")
    assert texts(said, "never") == ["step b was never entered."]
    assert texts(said, "refused") == ["run 1 of step a did not take arc 0 to b (when {{ workload.b }})."]
    with pytest.raises(InputError, match="no step 'nobody'"):
        await recorded.why(step="nobody")


async def test_a_join_names_all_that_led_to_it() -> None:
    said = await Recorded(Play(FORK).ok("start", "a", "b")).why(step="join")
    assert "arc 0 to join of step a was taken; arc 0 to join of step b was taken" in texts(said, "cause")[0]


async def test_a_failed_step_says_that_nobody_handled_it() -> None:
    said = await Recorded(Play("{step: a}").fail("a")).why(step="a")
    assert texts(said, "ended") == ["run 1 failed: boom."]
    assert texts(said, "failure") == ["run 1 failed the execution, for no arc handled it."]


async def test_a_frame_tells_of_its_owners_losses_and_rows() -> None:
    recorded = await Recorded(Play(EACH)).keep()
    await recorded.frame("frame.dispatched", attempt=1, worker="w1")
    await recorded.frame("frame.abandoned", attempt=1, worker="w1")
    assert texts(await recorded.why(frame_id=FRAME), "waits") == [
        "It is free, and the next worker of its stage takes it."
    ]
    await recorded.frame("frame.dispatched", attempt=2, worker="w2")
    await recorded.frame("frame.attempt_failed", "disk full", attempt=2)
    await recorded.frame("frame.dispatched", attempt=3, worker="w2")
    await recorded.frame(
        "frame.committed", attempt=3, failed_count=1, result={"status": "error", "errors": [{"message": "bad row"}]}
    )
    said = await recorded.why(frame_id=FRAME)
    assert texts(said, "rows")[0].startswith(f"frame {FRAME} of step each holds 5 rows from row 0 on")
    assert [said.topic for said in said.sentences] == [
        "rows",
        "attempt",
        "lost",
        "attempt",
        "failed",
        "attempt",
        "committed",
    ]
    assert "with 5 rows, 1 of them failed (bad row)." in texts(said, "committed")[0]
    assert texts(said, "failed")[0].endswith(": disk full.")
    with pytest.raises(NotFound, match="no frame 1"):
        await recorded.why(frame_id=1)


async def test_an_explanation_has_a_form_for_programs() -> None:
    recorded = Recorded(Play("{step: a}").ok("a"))
    said = (await recorded.why()).to_json()
    assert json.loads(json.dumps(said)) == said
    ended = (await recorded.events("playbook.completed"))[0].event_id
    assert said["as_of_event_id"] == str(ended)
    assert {"topic": "status", "text": said["sentences"][0]["text"], "event_ids": [str(ended)]} == said["sentences"][0]


async def test_without_the_playbook_events_alone_are_told() -> None:
    recorded = await Recorded(Play(FORK).ok("start", "a")).keep()
    said = await why(recorded.ledger, None, None, SCOPE, EXECUTION_ID, step="a")
    assert "arc 0 of step start was taken, after arc 2 did not hold" in texts(said, "cause")[0]
    with pytest.raises(NotFound, match="there is no execution 1 "):
        await why(recorded.ledger, None, None, SCOPE, 1)


async def test_every_moment_of_every_play_can_be_explained() -> None:
    for make in (lambda: Play(FORK), lambda: Play(EACH), lambda: Play(RETRIED, workload={"b": False})):
        play: Play = make()
        while True:
            recorded = Recorded(play)
            for step in (None, *play.plan.steps):
                assert (await recorded.why(step=step)).sentences
            if play.state.ended:
                break
            step = next(iter(play.state.active))
            play.end(step, tally=Tally(rows_done=20))


@pytest.mark.service
def test_the_command_explains_what_stands_in_the_database(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)

    async def record() -> int:
        async with open_runtime(load_settings()) as runtime:
            return (await framed_run(runtime.ledger, Drafts(SCOPE, IDS.mint), ended=False)).drafts[4].frame_id or 0

    frame_id = asyncio.run(record())
    run: Callable[..., None] = lambda *arguments: command.main(list(arguments), standalone_mode=False)  # noqa: E731
    run("last")
    assert "is running since" in capsys.readouterr().out
    run("last", str(frame_id), "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["subject"].startswith(f"frame {frame_id} of execution")
    assert "lost" in {one["topic"] for one in said["sentences"]}
