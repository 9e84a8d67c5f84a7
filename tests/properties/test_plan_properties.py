"""Any workflow, whatever its commands come to and in whatever order: decisions are the same each time, can be rebuilt from
what they recorded, take no trigger twice, and always lead to an end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.engine.plan.playing import EXECUTION_ID, folded, minting, start_of

from noetl.engine.plan.decide import decide
from noetl.engine.plan.fact import Fact
from noetl.engine.plan.planned import Plan
from noetl.engine.plan.state import State
from noetl.engine.plan.trigger import Cancelled, CommandEnded, Doubt, Tally, Trigger
from noetl.language.playbook.model import Admission, Arc, Fanout, FramePolicy, Loop, Playbook, Router, Step, Task

ROUNDS = 6
"""How often a step may lead back before its counter stops it."""
MOST_DECISIONS = 4_000

WHENS = (
    None,
    None,
    None,
    None,
    "{{ ctx.flag }}",
    "{{ not ctx.flag }}",
    "{{ (output.data or {}).get('n', 0) > 2 }}",
    "{{ event.name == 'loop.done' or event.name == 'step.done' }}",
    "{{ event.name == 'step.failed' }}",
    "{{ output.status == 'error' }}",
    "{{ ctx.nowhere }}",
)
SETS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"ctx.flag": True},
    {"ctx.flag": False},
    {"ctx.deep.n": "{{ (ctx.n_of_all | default(0)) / 2 }}"},
    {"ctx.deep": {"n": 1}, "ctx.last": "{{ event.name }}"},
    {"ctx.last": "{{ 7 / 7 }}", "ctx.deep.m": "{{ {'z': 1, 'a': (1, 2)} }}"},
)
LOOPS = (
    *(None,) * 8,
    Loop(iterator="i", collection=[1, 2, 3], mode="parallel", max_in_flight=2, frame=FramePolicy(max_rows=1)),
    Loop(iterator="i", collection=[], mode="parallel"),
    Loop(iterator="i", collection="{{ workload.items }}"),
    Loop(iterator="i", collection="{{ ctx.nowhere }}"),
    Loop(iterator="i", collection=[1, 2], mode="fanout", max_in_flight=2, fanout=Fanout(allow_partial=False)),
    Loop(iterator="i", mode="cursor", max_in_flight=2),
)
ADMIT = (
    (),
    (),
    (),
    (),
    (),
    (),
    (Admission(when="{{ ctx.flag }}", allow=False),),
    (Admission(allow="{{ workload.admit }}"),),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a workflow of two to eight steps. A way back counts its turns, so that a run is as long as its work."""
    names = [f"s{number}" for number in range(draw(st.integers(2, 8)))]
    steps = {name: _step(draw, names, number) for number, name in enumerate(names)}
    playbook = Playbook(
        name="demo",
        path="demo/it",
        metadata={},
        steps=steps,
        entry=names[0],
        final=draw(st.sampled_from([None, None, names[-1]])),
        no_next_is_error=draw(st.sampled_from([False, False, False, True])),
        digest="d",
    )
    return Plan(playbook)


def _step(draw: st.DrawFn, names: list[str], number: int) -> Step:
    arcs = [
        _arc(draw, names[number], names.index(target) <= number, target)
        for target in draw(st.lists(st.sampled_from(names), min_size=int(number < len(names) - 1), max_size=3))
    ]
    return Step(
        name=names[number],
        tasks=(Task(name=names[number], kind="noop", input=draw(st.sampled_from([{}, {"some": "work"}]))),),
        loop=draw(st.sampled_from(LOOPS)),
        set=draw(st.sampled_from(SETS)),
        admit=draw(st.sampled_from(ADMIT)),
        failure=draw(st.sampled_from(["fail_fast", "fail_fast", "best_effort"])),
        router=Router(mode=draw(st.sampled_from(["exclusive", "inclusive"])), arcs=tuple(arcs)),
    )


def _arc(draw: st.DrawFn, source: str, is_back: bool, target: str) -> Arc:
    if not is_back:
        return Arc(step=target, when=draw(st.sampled_from(WHENS)), set=draw(st.sampled_from(SETS)))
    turns = f"ctx.turns_{source}"
    return Arc(
        step=target,
        when=f"{{{{ ({turns} | default(0)) < {ROUNDS} }}}}",
        set={turns: f"{{{{ ({turns} | default(0)) + 1 }}}}"},
    )


reports = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok"] * 7 + ["error"]),
        "data": st.sampled_from([None, {"n": 1}, {"n": 3.0}, [1, 2], "text"]),
        "ctx_writes": st.sampled_from([{}, {"flag": True}, {"deep.n": 1, "deep": {}}, {"n_of_all": 3}]),
        "swallowed": st.sampled_from([0, 0, 1]),
        "accumulate": st.sampled_from([None, None, {"strategy": "append"}, {"strategy": "concat"}]),
    }
)
tallies = st.builds(
    Tally,
    frames=st.integers(0, 3),
    rows_done=st.integers(0, 3),
    rows_failed=st.integers(0, 2),
    errors=st.integers(0, 1),
    ctx=st.sampled_from([{}, {"flag": False}, {"deep.m": 1.0}]),
)


class Run:
    """One execution of a drawn plan, decided twice at every turn."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.state = State(execution_id=EXECUTION_ID)
        self.facts: list[Fact] = []
        self.taken: list[Trigger] = []
        self.decisions = 0

    def take(self, trigger: Trigger) -> None:
        seed = 1_000 + len(self.facts) * 10
        first = decide(self.plan, self.state, trigger, _mint_from(seed), {})
        second = decide(self.plan, self.state, trigger, _mint_from(seed), {})
        assert first == second, "the same question had two answers"
        self.facts += first.facts
        self.state = first.state
        self.taken.append(trigger)
        self.decisions += 1
        # Compared as text, in which 2.0 is not 2 and the order of keys counts, as both do in templates.
        assert repr(folded(self.facts)) == repr(self.state), "what was recorded leads to another state"
        assert self.state.ended or self.open, "nothing is open, and the execution has not ended"
        assert not self.state.ended or not self.state.active

    @property
    def open(self) -> list[str]:
        return [command for run in self.state.active.values() for command in run.open]

    def refuses(self, trigger: Trigger) -> None:
        """Check that a trigger that was decided on says nothing when it comes again."""
        assert decide(self.plan, self.state, trigger, minting(), {}).facts == ()


def _mint_from(first: int) -> Callable[[], int]:
    ids = iter(range(first, first + 100_000))
    return lambda: next(ids)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plan=plans(), flag=st.booleans(), data=st.data())
def test_every_run_is_decided_the_same_way_can_be_rebuilt_and_ends(plan: Plan, flag: bool, data: st.DataObject) -> None:
    run = Run(plan)
    run.take(start_of(plan, {"items": [1], "admit": flag}, rerun_of=1, ctx={"flag": flag}))
    choices = data.draw(st.lists(st.tuples(st.integers(0, 7), reports, tallies, st.integers(0, 30)), max_size=60))
    calm: tuple[int, dict[str, Any], Tally, int] = (0, {"status": "ok"}, Tally(rows_done=3), 9)
    while not run.state.ended:
        assert run.decisions < MOST_DECISIONS, "the run does not come to an end"
        which, report, tally, again = choices.pop() if choices else calm
        command_id = run.open[which % len(run.open)]
        if again < len(run.taken):
            run.refuses(run.taken[again])
        run.refuses(Doubt())
        error = {"message": "boom"} if report["status"] == "error" else None
        run.take(CommandEnded(command_id=command_id, attempt=1, error=error, tally=tally, **report))
        run.refuses(run.taken[-1])
    assert (
        len([fact for fact in run.facts if fact.event_type.startswith(("playbook.c", "playbook.f", "execution.f"))])
        == 1
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plan=plans(), after=st.integers(0, 6))
def test_a_run_can_be_cancelled_at_any_time_and_nothing_comes_after(plan: Plan, after: int) -> None:
    run = Run(plan)
    run.take(start_of(plan, {"items": [1], "admit": True}, rerun_of=1, ctx={"flag": True}))
    while not run.state.ended and run.decisions <= after:
        run.take(CommandEnded(command_id=run.open[0], attempt=1, status="ok", tally=Tally(rows_done=3)))
    run.take(Cancelled(reason="enough", by="ann"))
    assert run.state.ended
    for trigger in run.taken:
        run.refuses(trigger)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(plan=plans())
def test_a_join_begins_only_when_nothing_under_way_leads_to_it(plan: Plan) -> None:
    run = Run(plan)
    run.take(start_of(plan, {"items": [1], "admit": True}, rerun_of=1, ctx={"flag": True}))
    while not run.state.ended and run.decisions < 200:
        before = set(run.state.active)
        command_id = run.open[-1]
        ended = command_id.split("/")[0]
        said = len(run.facts)
        run.take(CommandEnded(command_id=command_id, attempt=1, status="ok", tally=Tally(rows_done=3)))
        still = before & set(run.state.active) - {ended}
        for fact in run.facts[said:]:
            step = fact.node_name or ""
            if fact.event_type == "step.entered" and plan.graph.is_reduce(step) and not fact.meta.get("final"):
                assert not any(plan.graph.reaches(other, step) for other in still)
