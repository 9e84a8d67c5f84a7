"""Checks for runs that cannot end: rings of steps or tasks without work, and playbooks that always call themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from noetl.language.grammar.problems import Problems
from noetl.language.playbook.model import Playbook, Step, Task
from noetl.language.playbook.parse import Parsed


def check_rings(parsed: Parsed, problems: Problems) -> None:
    """Warn of every ring without work that no condition ends."""
    playbook = parsed.playbook
    most = playbook.limits.steps_without_work
    for ring in _rings(_always(playbook)):
        said = f"the steps {' → '.join((*ring, ring[0]))} lead round for ever and do nothing"
        hint = f"end it with when on an arc; an execution is ended after {most} steps without work"
        problems.warning("endless_ring", said, parsed.place("workflow", ring[0], "next"), hint)
    for step in playbook.steps.values():
        for number in _jumping(step.tasks):
            within = (number,) if step.is_sequence else ()
            said = f"the task {step.tasks[number].name} jumps back for ever, and nothing is done on the way"
            hint = f"give the rule a when; a step fails after {most} tasks that did nothing"
            problems.warning("endless_ring", said, parsed.place("workflow", step.name, "tool", *within, "spec"), hint)


def _always(playbook: Playbook) -> dict[str, tuple[str, ...]]:
    """Return where steps without work lead whatever happens, as far as that is another such step."""
    idle = {name for name, step in playbook.steps.items() if _is_idle(step)}
    return {
        name: tuple(arc for arc in _taken(playbook.steps[name]) if arc in idle)
        for name in playbook.steps
        if name in idle
    }


def _is_idle(step: Step) -> bool:
    return (
        step.loop is None and not step.admit and all(task.kind == "noop" and task.policy is None for task in step.tasks)
    )


def _taken(step: Step) -> Iterator[str]:
    """Walk over the arcs that are always taken; of exclusive ones only the first is not decided by one before it."""
    if step.router is None:
        return
    arcs = step.router.arcs if step.router.mode == "inclusive" else step.router.arcs[:1]
    yield from (arc.step for arc in arcs if arc.when in (None, "true"))


def _rings(targets: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Walk over rings, at least one for all that are joined, each from the step in it that stands first."""
    told: set[str] = set()
    for start in targets:
        way = None if start in told else _way_back(targets, start, told)
        if way is not None:
            told.update(way)
            yield way


def _way_back(targets: Mapping[str, Sequence[str]], start: str, told: set[str]) -> tuple[str, ...] | None:
    """Return the shortest way from a step back to it, past none that is in a ring already told."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = set(told)
    for way in ways:
        for target in targets[way[-1]]:
            if target == start:
                return way
            if target not in seen:
                seen.add(target)
                ways.append((*way, target))
    return None


def _jumping(tasks: Sequence[Task]) -> Iterator[int]:
    """Walk over the tasks that always jump to themselves or back, with nothing but tasks without work between."""
    labels = {task.name: number for number, task in enumerate(tasks)}
    for number, task in enumerate(tasks):
        rule = task.policy.rules[0] if task.policy is not None and task.policy.rules else None
        if rule is None or rule.when is not None or rule.then.do != "jump":
            continue
        first = labels.get(rule.then.to or "", number - 1 if rule.then.to == "previous" else len(tasks))
        between = tasks[max(first, 0) : number]
        if first <= number and task.kind == "noop" and all(_goes_on(one) for one in between):
            yield number


def _goes_on(task: Task) -> bool:
    return task.kind == "noop" and task.policy is None


def check_recursion(parsed: Parsed, problems: Problems) -> None:
    """Warn of every task that runs its own playbook without anything that could keep it from that."""
    playbook = parsed.playbook
    for step in _entered_always(playbook):
        for number, task in enumerate(_run_always(step)):
            if _calls(task, playbook.path):
                within = (number,) if step.is_sequence else ()
                field = "path" if task.kind == "playbook" else "entrypoint"
                place = parsed.place("workflow", step.name, "tool", *within, field)
                said = f"the step {step.name} runs its own playbook, which runs it again, and so on"
                hint = "let a condition end it, with when on an arc or with spec.policy.admit"
                problems.warning("calls_itself", said, place, hint)


def _calls(task: Task, path: str) -> bool:
    """Tell whether a task runs the newest version under a path: another version may be a playbook that ends."""
    options = task.options
    is_agent = task.kind == "agent" and options.get("framework") == "noetl"
    called = options.get("entrypoint") if is_agent else options.get("path") if task.kind == "playbook" else None
    return called == path and options.get("version") in (None, "latest")


def _entered_always(playbook: Playbook) -> Iterator[Step]:
    """Walk over the steps that are entered in every run that does not fail before."""
    waiting = [playbook.entry, *([] if playbook.final is None else [playbook.final])]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        step = playbook.steps.get(name)
        if step is None or name in seen:
            continue
        seen.add(name)
        if step.admit:
            continue
        yield step
        waiting += _left_always(step)


def _left_always(step: Step) -> Iterator[str]:
    """Walk over where a step always leads; of exclusive arcs only the first is not decided by one before it."""
    if step.router is None:
        return
    arcs = step.router.arcs if step.router.mode == "inclusive" else step.router.arcs[:1]
    yield from (arc.step for arc in arcs if arc.when is None)


def _run_always(step: Step) -> Iterator[Task]:
    """Walk over the tasks that run whenever a step is entered: a loop may have no rows, and policies lead elsewhere."""
    if step.loop is not None:
        return
    for task in step.tasks:
        yield task
        if task.policy is not None:
            return
