"""Runs a step's tasks as one unit: compiled tasks and names go in, what the step came to comes out.

It knows no ledger, lease or clock: tools, waiting and time are given. Whatever a task does wrong becomes an outcome its
policy decides on; only cancellation, lost races and values that could not be fetched leave as exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from noetl.engine.catalog.evaluation import at_once
from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.tools.port import Call, Tool
from noetl.engine.worker import failures
from noetl.engine.worker.child_calls import is_playbook
from noetl.engine.worker.compiled_step import CompiledStep, CompiledTask
from noetl.engine.worker.policy import Verdict, decide
from noetl.errors import Conflict, TemplateFailed
from noetl.language.playbook.selection import select
from noetl.language.templates.bounds.meter import Lengthy
from noetl.language.templates.result_view import View, alone, output_view
from noetl.language.templates.scopes import Names, apply_set
from noetl.model.payload_ref import PayloadRef

RUNS_MAX = 1_000_000
_RUNS_BETWEEN_PAUSES = 128
_SECONDS_MAX = 31_536_000.0

MakeCall = Callable[..., Call]
Defer = Callable[[CompiledTask, Call], None]
RunChild = Callable[[CompiledTask, Call], Awaitable[Outcome]]
Beside = Callable[[Callable[[], Any]], Awaitable[Any]]


class Tried(msgspec.Struct, frozen=True):
    """A task that was tried more than once or failed, over all its runs in the sequence."""

    task: str
    tries: int
    errors: tuple[str, ...]
    """The kinds of its problems, each once, in the order met."""


class SequenceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a step came to. Writes stand by dotted path inside their scope, in the order they were made."""

    status: Literal["ok", "error"]
    data: Any
    output: dict[str, Any]
    error: Problem | None
    ctx_writes: dict[str, Any]
    step_writes: dict[str, Any]
    iter_writes: dict[str, Any]
    swallowed: int
    """How many errors a rule let pass."""
    tries: tuple[Tried, ...]
    artifacts: tuple[PayloadRef, ...]
    """Payloads that tasks put into the store, each once: an event must name them, or they would be collected."""
    results: dict[str, Any]
    """What each task came to, by its name."""
    last: str | None
    """The task whose result is the step's, if any is."""


async def run_sequence(
    step: CompiledStep,
    names: Names,
    *,
    tools: Mapping[str, Tool],
    make_call: MakeCall,
    sleep: Callable[[float], Awaitable[None]],
    monotonic: Callable[[], float],
    beside: Beside,
    defer: Defer | None = None,
    children: RunChild | None = None,
    runs_max: int = RUNS_MAX,
) -> SequenceResult:
    """Run a step's tasks from the first until one ends the sequence.

    `make_call(task=, run=, kind=, options=, input=, auth=, scope=, timeout=)` adds what the worker knows to a rendered
    call; `run` counts from 1 how often the task was entered, so that `(task, run)` names an effect. With `defer`, a
    last task of kind `postgres` is handed over instead of run. `children` runs tasks whose work is another playbook.
    `beside` evaluates templates that take long, while others use the event loop.
    """
    run = _Run(step, names, tools, make_call, sleep, monotonic, beside, defer, children, runs_max)
    return await run.to_the_end()


class _Run:
    """One run through the tasks of a step."""

    __slots__ = (
        "_artifacts", "_beside", "_children", "_data", "_defer", "_entered", "_idle", "_input", "_last", "_make_call", "_monotonic",
        "_names", "_names_itself", "_output", "_results", "_runs_left", "_set_failed", "_sleep", "_step", "_swallowed",
        "_told", "_tools", "_tried", "_views",
    )  # fmt: skip

    def __init__(
        self,
        step: CompiledStep,
        names: Names,
        tools: Mapping[str, Tool],
        make_call: MakeCall,
        sleep: Callable[[float], Awaitable[None]],
        monotonic: Callable[[], float],
        beside: Beside,
        defer: Defer | None,
        children: RunChild | None,
        runs_max: int,
    ) -> None:
        self._step, self._names, self._tools, self._make_call = step, names, tools, make_call
        self._sleep, self._monotonic, self._defer, self._children = sleep, monotonic, defer, children
        self._beside = beside
        self._runs_left = runs_max
        self._entered: dict[str, int] = {}
        self._idle = 0
        self._input: Mapping[str, Any] = names.get("input") or {}
        self._results: dict[str, Any] = names["results"]
        self._data: Any = None
        self._views: dict[str, View] = {}
        """Those bindings of the step that are results as a whole."""
        self._last: str | None = None
        self._output: dict[str, Any] | None = None
        self._told: dict[str, Any] = {}
        """The outcome of the last try, as `output` tells it."""
        self._set_failed = False
        # A step of one task is known by its own name to the rules and `set` of that task.
        self._names_itself = not step.is_sequence and not names.is_kept(step.name)
        self._swallowed = 0
        self._tried: dict[str, Tried] = {}
        self._artifacts: dict[str, PayloadRef] = {}

    async def to_the_end(self) -> SequenceResult:
        step, names = self._step, self._names
        if step.input is not None:
            try:
                given = await self._evaluated(step.input.render, names)
                self._views = _views_in(given)
                self._input = names["input"] = {**self._input, **_values_of(given)}
            except TemplateFailed as error:
                return self._ended(failures.unrendered(error, step, self._results, None))
        index = 0
        while index < len(step.tasks):
            task = step.tasks[index]
            entered = self._entered[task.name] = self._entered.get(task.name, 0) + 1
            names["_task"] = task.name
            try:
                outcome, verdict = await self._until_decided(task, entered, is_last=index == len(step.tasks) - 1)
            except _Ended as ended:
                return self._ended(ended.problem)
            if verdict.do == "fail":
                return self._ended(failures.refused(task, outcome, verdict))
            if outcome.status == "error":
                self._swallowed += 1
            if verdict.do == "break":
                break
            if verdict.do == "jump":
                target = self._target(verdict, index)
                if target is None:
                    return self._ended(failures.unknown_label(step, verdict.to))
                index = target
            else:
                index += 1
        return self._ended(None)

    async def _until_decided(self, task: CompiledTask, entered: int, *, is_last: bool) -> tuple[Outcome, Verdict]:
        """Try a task until its policy says something else than retry, and apply what the policy sets."""
        names, attempt = self._names, 1
        while True:
            self._runs_left -= 1
            if self._runs_left < 0:
                raise _Ended(failures.endless(task))
            self._idle = self._idle + 1 if task.kind == "noop" else 0
            if self._idle > self._step.most_idle:
                raise _Ended(failures.idle(task, self._step.most_idle))
            if self._runs_left % _RUNS_BETWEEN_PAUSES == 0:
                await self._sleep(0)  # tasks that never wait must not keep heartbeats from beating
            names["_attempt"] = attempt
            outcome, selected = await self._try(task, entered, attempt, is_last=is_last)
            try:
                if task.policy is None:
                    verdict = decide(None, names, outcome, attempt)  # there is nothing to evaluate
                else:
                    verdict = await self._evaluated(decide, task.policy, names, outcome, attempt)
                if outcome.status == "error" and task.set and verdict.do in _LET_PASS and not self._set_failed:
                    await self._evaluated(partial(apply_set, may_lack=True), names, task.set)
                if verdict.set:
                    await self._evaluated(apply_set, names, verdict.set)
            except TemplateFailed as error:
                self._keep(task, outcome, selected)
                problem = failures.unrendered(error, self._step, self._results, task)
                raise _Ended(failures.undecided(problem, outcome)) from None
            if outcome.status == "error" or attempt > 1 or verdict.do == "retry":
                self._note(task, outcome)
            if verdict.do != "retry":
                self._keep(task, outcome, selected)
                return outcome, verdict
            attempt += 1
            if verdict.delay_seconds > 0:
                self._idle = 0  # waiting on purpose is no idle turning
                await self._sleep(verdict.delay_seconds)

    async def _try(self, task: CompiledTask, entered: int, attempt: int, *, is_last: bool) -> tuple[Outcome, Any]:
        """Try a task once, put its outcome into the names and return it with the data the step is to have of it."""
        names = self._names
        started = self._monotonic()
        if task.kind == "noop":
            outcome = _NOTHING
            names["input"] = self._input
        else:
            try:
                call = await self._call(task, entered)
            except TemplateFailed as error:
                outcome = _error(failures.unrendered(error, self._step, self._results, task))
            else:
                outcome = await self._carry_out(task, call, is_last=is_last)
        duration = round((self._monotonic() - started) * 1000, 3)
        self._tell(outcome, attempt, duration)
        self._set_failed = False
        selected = outcome.data
        if outcome.status == "ok" and (task.select or task.set):
            selected, problem = await self._evaluated(self._taken, task, outcome)
            if problem is not None:
                outcome = msgspec.structs.replace(outcome, status="error", error=problem)
                self._tell(outcome, attempt, duration)
        return outcome, selected

    def _tell(self, outcome: Outcome, attempt: int, duration_ms: float) -> None:
        """Let templates see an outcome."""
        self._told = outcome.as_output(attempt=attempt, duration_ms=duration_ms)
        self._names["output"] = output_view(self._told)
        if self._names_itself:
            self._names.keep(self._step.name, _view(outcome.data, self._told))

    def _taken(self, task: CompiledTask, outcome: Outcome) -> tuple[Any, Problem | None]:
        """Select from a result and set what the task sets."""
        selected = outcome.data
        if task.select:
            try:
                selected = select(outcome.data, task.select)
            except TemplateFailed as error:
                return selected, failures.unselected(error, task)
        try:
            apply_set(self._names, task.set)
        except TemplateFailed as error:
            self._set_failed = True
            return selected, failures.unrendered(error, self._step, self._results, task)
        return selected, None

    async def _evaluated(self, evaluate: Callable[..., Any], *args: Any) -> Any:
        """Evaluate templates at once, or beside the event loop where they take long. Until then they change nothing."""
        try:
            return at_once(evaluate, *args)
        except Lengthy:
            return await self._beside(partial(evaluate, *args))

    async def _call(self, task: CompiledTask, entered: int) -> Call:
        rendered = await self._evaluated(self._rendered, task)
        return self._make_call(task=task, run=entered, kind=task.kind, scope=self._names, **rendered)

    def _rendered(self, task: CompiledTask) -> dict[str, Any]:
        names = self._names
        bound, views = self._input, self._views
        names["input"] = bound
        if task.input is not None:
            given = task.input.render(names)
            views = {**{name: view for name, view in views.items() if name not in given}, **_views_in(given)}
            bound = names["input"] = {**bound, **_values_of(given)}
        return {
            "options": task.options.render(names),
            "input": bound,
            "views": views,
            "auth": task.auth.render(names),
            "timeout": None if task.timeout is None else _seconds(task.timeout.render(names), task),
        }

    async def _carry_out(self, task: CompiledTask, call: Call, *, is_last: bool) -> Outcome:
        if is_last and self._defer is not None and task.kind == "postgres":
            self._defer(task, call)
            return _DEFERRED
        tool = self._tools.get(task.kind)
        runs_playbook = task.kind == "playbook" or (task.kind == "agent" and is_playbook(call))
        if self._children is not None and runs_playbook:
            work = self._children(task, call)
        elif tool is not None:
            work = tool.run(call)
        else:
            return _error(failures.unknown_tool(task, self._tools))
        limit = None
        try:
            if call.timeout is None or getattr(tool, "keeps_time", False):
                return await work
            async with asyncio.timeout(call.timeout) as limit:
                return await work
        except Conflict:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and limit is not None and limit.expired():
                return _error(failures.timed_out(task, call.timeout or 0.0))
            return _error(failures.broken_off(task, error))

    def _keep(self, task: CompiledTask, outcome: Outcome, selected: Any) -> None:
        names = self._names
        if outcome.artifacts:
            self._artifacts |= {ref.sha256: ref for ref in outcome.artifacts}
        if task.kind != "noop" or outcome.status == "error":
            # A noop carries rules alone: the result stays that of the last task that did something.
            self._data, self._output, self._last = selected, self._told, task.name
            names["_prev"] = _view(outcome.data, self._told)
        elif self._output is None:
            self._output = self._told
        self._results[task.name] = outcome.data
        if self._step.is_sequence:
            shown = outcome.data if outcome.hidden is None else outcome.hidden.value
            names.keep(task.name, _view(shown, {**self._told, "data": shown}))

    def _note(self, task: CompiledTask, outcome: Outcome) -> None:
        before = self._tried.get(task.name)
        tries, errors = (0, ()) if before is None else (before.tries, before.errors)
        if outcome.error is not None and outcome.error.kind not in errors:
            errors = (*errors, outcome.error.kind)
        self._tried[task.name] = Tried(task.name, tries + 1, errors)

    def _target(self, verdict: Verdict, index: int) -> int | None:
        if verdict.to == "previous" and "previous" not in self._step.labels:
            return index - 1 if index > 0 else None
        return None if verdict.to is None else self._step.labels.get(verdict.to)

    def _ended(self, problem: Problem | None) -> SequenceResult:
        names, output = self._names, self._output or _NOTHING.as_output(attempt=1, duration_ms=0.0)
        if problem is not None and output["error"] is None:
            said = Outcome(status="error", error=problem).as_output(attempt=1, duration_ms=0.0)
            output = {**output, "status": "error", "error": said["error"]}
        return SequenceResult(
            status="ok" if problem is None else "error",
            data=self._data,
            output=output,
            error=problem,
            ctx_writes=names.ctx_writes,
            step_writes=names.step_writes,
            iter_writes=names.iter_writes,
            swallowed=self._swallowed,
            tries=tuple(self._tried.values()),
            artifacts=tuple(self._artifacts.values()),
            results=self._results,
            last=self._last,
        )


class _Ended(Exception):
    """The sequence is over, whatever a policy would say."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


_LET_PASS = frozenset({"continue", "break", "jump"})
"""What a rule may say about an error other than to try again or to fail."""
_NOTHING = Outcome()
_DEFERRED = Outcome(data={"deferred": True})


def _view(data: Any, told: dict[str, Any]) -> View:
    """Return what a task came to as its name shows it."""
    return View(data, beside={"result": data, **{name: told[name] for name in ("data", "status", "error")}})


def _views_in(given: dict[str, Any]) -> dict[str, View]:
    return {name: value for name, value in given.items() if isinstance(value, View)}


def _values_of(given: dict[str, Any]) -> dict[str, Any]:
    return {name: alone(value) for name, value in given.items()}


def _error(problem: Problem) -> Outcome:
    return Outcome(status="error", error=problem)


def _seconds(value: Any, task: CompiledTask) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(value, bool) or not seconds > 0:
        where = f"{task.where}, field timeout"
        raise TemplateFailed(f"{where}: a number of seconds above 0 is needed", where=where)
    return min(seconds, _SECONDS_MAX)
