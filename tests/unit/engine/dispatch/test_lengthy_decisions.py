"""Decisions whose templates take long: beside the event loop, within bounds, and not for ever (INV-188, INV-189)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.dispatch.executions import DECISIONS_BEGUN_MAX
from noetl.engine.plan.trigger import CommandEnded
from noetl.errors import TemplateUnbounded, Unavailable
from noetl.language.templates.bounds.meter import INLINE_STEPS, spend
from noetl.language.templates.template import compile_value
from noetl.model.stream import Scope
from noetl.testing.attacks.documents import ENDLESS_TEMPLATES, LENGTHY_TEMPLATE, playbook_with
from noetl.testing.engines.memory import MemoryPlaybooks, open_memory_playbooks
from noetl.testing.engines.playbook_runs import playbook

ENDLESS = ENDLESS_TEMPLATES["nested loops"]
ONE, TWO = Scope("a", "one"), Scope("b", "two")


@pytest.fixture
async def playbooks(tmp_path: Path) -> AsyncIterator[MemoryPlaybooks]:
    async with open_memory_playbooks(tmp_path) as playbooks:
        playbooks.engine.catalog.plans.evaluating.steps = 150_000
        yield playbooks


async def test_an_arc_that_would_not_end_fails_its_execution_with_its_place(playbooks: MemoryPlaybooks) -> None:
    """INV-187: playbook, step, field and line stand in the event that ends the execution."""
    state = await playbooks.run(playbook_with(ENDLESS))
    assert state.status == "FAILED"
    assert "step first" in (state.error or "")
    assert "when: it takes more steps than a template may" in (state.error or "")
    assert "of the playbook)" in (state.error or "")


async def test_a_condition_on_an_error_is_bounded_as_well(playbooks: MemoryPlaybooks) -> None:
    """INV-187: data that is missing after an error lets a condition not hold; a bound does not."""
    text = playbook_with("{{ output.status }}" + ENDLESS).replace("result = 1", "raise ValueError(1)")
    state = await playbooks.run(text)
    assert state.status == "FAILED"
    assert "it takes more steps than a template may" in (state.error or "")


async def test_a_lengthy_decision_within_its_bounds_comes_to_what_it_says(playbooks: MemoryPlaybooks) -> None:
    """INV-188: what is begun again in a thread decides as at once."""
    state = await playbooks.run(playbook_with(LENGTHY_TEMPLATE))
    assert (state.status, set(state.results)) == ("COMPLETED", {"first", "second"})


async def test_a_task_that_would_not_end_fails_with_its_place(playbooks: MemoryPlaybooks) -> None:
    """INV-187: what a worker renders is bounded, too, and beside its heartbeats."""
    body = f"""
workflow:
  - step: only
    tool: {{kind: python, code: "result = x", input: {{x: "{ENDLESS}"}}}}
"""
    worker = await playbooks.worker()
    worker._services.evaluating.steps = 150_000
    state = await playbooks.run(playbook(body))
    assert state.status == "FAILED"
    assert "step only" in (state.error or "")
    assert "it takes more steps than a template may" in (state.error or "")


async def test_a_workload_that_would_not_end_is_refused(playbooks: MemoryPlaybooks) -> None:
    """INV-187: defaults are rendered when an execution is requested."""
    with pytest.raises(TemplateUnbounded, match=r"workload\.x: it takes more steps"):
        await playbooks.start(playbook(f'workload: {{x: "{ENDLESS}"}}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]'))


async def test_a_decision_that_kills_its_process_is_not_tried_for_ever(playbooks: MemoryPlaybooks) -> None:
    """INV-189: processes that died while they decided have left their count, and the execution ends by it."""
    entry = await playbooks.register(playbook_with(LENGTHY_TEMPLATE))
    started = await playbooks.engine.start(playbooks.scope, entry, requested_by="tests")
    running = playbooks.engine._stores.running
    for _ in range(DECISIONS_BEGUN_MAX):
        head = await running.head(playbooks.scope, started.execution_id)
        assert head is not None
        await running.deciding(playbooks.scope, started.execution_id, head.version)
    await playbooks.worker()
    state = await playbooks.finished(started.execution_id)
    assert state.status == "FAILED"
    assert f"deciding what follows step first was begun {DECISIONS_BEGUN_MAX} times" in (state.error or "")
    assert await running.deciding(playbooks.scope, started.execution_id, 0) == 1


async def test_a_lengthy_decision_that_cannot_be_forgotten_has_its_answer_all_the_same(
    playbooks: MemoryPlaybooks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-191: the decision stands, so who asked for it gets what it came to."""
    entry = await playbooks.register(playbook_with(LENGTHY_TEMPLATE))
    started = await playbooks.engine.start(playbooks.scope, entry, requested_by="tests")
    running, away = playbooks.engine._stores.running, [True]
    decided = running.decided

    async def blip(scope: Scope, execution_id: int) -> None:
        if away and away.pop():
            raise Unavailable("the database does not answer")
        await decided(scope, execution_id)

    monkeypatch.setattr(running, "decided", blip)
    dispatch = playbooks.engine.dispatch(playbooks.scope)
    (first,) = await dispatch.claim("w", 1, 0.0)
    report = CommandEnded(command_id=first.command_id, attempt=1, status="ok", data={"x": 1})
    await dispatch.complete(first, report, worker="w", take_next=False)
    assert "forgetting that it was lengthy" in caplog.text
    assert (await playbooks.finished(started.execution_id)).status == "COMPLETED"
    assert await running.deciding(playbooks.scope, started.execution_id, 0) == 1


async def test_the_event_loop_goes_on_while_something_is_evaluated() -> None:
    """INV-188: a thread evaluates, and does not begin before its organization's turn; others do not wait for it."""
    evaluating, begun, free = Evaluating(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def long() -> str:
        spend(INLINE_STEPS + 1)
        loop.call_soon_threadsafe(begun.set)
        assert free.wait(60)
        return "long"

    first = asyncio.create_task(evaluating.run(ONE, long))
    await begun.wait()
    second = asyncio.create_task(evaluating.beside(ONE, lambda: "second"))
    assert await evaluating.beside(TWO, lambda: "other") == "other"
    assert not first.done()
    assert not second.done()
    free.set()
    assert [await first, await second] == ["long", "second"]


async def test_time_ends_what_steps_do_not() -> None:
    """INV-187: the clock is the second net, and says so."""
    evaluating = Evaluating(monotonic=iter(range(0, 100_000, 20)).__next__)
    with pytest.raises(TemplateUnbounded, match="field x: it takes longer than 30 seconds"):
        await evaluating.run(ONE, lambda: compile_value(ENDLESS, "field x").render({}))
