"""Checks for playbooks that call themselves whatever happens: such a run goes down as deep as it may, and fails there."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.playbook.model import Playbook, Step, Task
from noetl.playbook.parse import Parsed
from noetl.playbook.problems import Problems


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
