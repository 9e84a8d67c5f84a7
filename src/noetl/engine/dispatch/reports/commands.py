"""Reports about commands, checked against the command that was granted and the step it is of."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from noetl.engine.dispatch.grants import Child, CommandGrant
from noetl.engine.dispatch.reports import references, shared_values
from noetl.engine.dispatch.reports.references import Named
from noetl.engine.dispatch.reports.refusals import (
    bounded,
    by_worker,
    count,
    json_bytes,
    name,
    named,
    one_of,
    refuse,
    shortened,
)
from noetl.engine.plan.trigger import CommandEnded
from noetl.kernel.payloads.codec import JSON
from noetl.language.playbook.model import Step

LONGEST_MS: Final = 366 * 86_400_000.0
"""The longest time that a command may be said to have taken."""
LONGEST_DELAY: Final = 86_400.0
REASON_CHARACTERS: Final = 10_000
TRIES_BYTES: Final = 16_384
ERRORS_PER_STEP: Final = 1_000_000
_HELPERS: Final = ("http", "pg", "py")
_STARTS_CHILDREN: Final = frozenset({"playbook", "agent"})
_OF_TASKS: Final = (
    "data", "ref", "selected", "tasks", "last_task", "helpers", "ctx_writes", "swallowed", "tries", "accumulate",
    "artifacts",
)  # fmt: skip


def end(grant: CommandGrant, report: CommandEnded, step: Step, worker: str) -> tuple[CommandEnded, list[Named]]:
    """Return what may be recorded of an end and the references to look up; what the command cannot come to is refused.

    What came of a stage's rows, and where the worker is, is found out here, whatever a worker says.
    """
    by_worker(worker, grant.worker)
    if report.command_id != grant.command_id:
        refuse("report.command_id", report.command_id, f"the lease is on {grant.command_id}")
    if report.attempt != grant.attempt:
        refuse("report.attempt", report.attempt, f"the lease is on attempt {grant.attempt}")
    one_of("report.status", report.status, ("ok", "error"), "a command ends with ok or error")
    took = report.duration_ms
    if isinstance(took, bool) or not isinstance(took, int | float) or not 0 <= took <= LONGEST_MS or math.isnan(took):
        refuse("report.duration_ms", took, "a command takes 0 milliseconds to 366 days")
    report = msgspec.structs.replace(report, tally=None, near=None)
    if report.error is not None:
        report = msgspec.structs.replace(report, error=bounded("report.error", report.error, details_bytes=None))
    return report, _of_slot(grant, report) if grant.loop is not None else _of_step(report, step)


def _of_slot(grant: CommandGrant, report: CommandEnded) -> list[Named]:
    """Refuse results of a slot: what its rows came to stands in its frames."""
    for field in _OF_TASKS:
        if value := getattr(report, field):
            refuse(f"report.{field}", value, f"{grant.command_id} is a slot of a loop, whose frames have the results")
    return []


def _of_step(report: CommandEnded, step: Step) -> list[Named]:
    tasks = [task.name for task in step.tasks]
    its = f"the tasks of step {step.name} are {', '.join(tasks)}"
    for task in (*named("report.tasks", report.tasks), *([] if report.last_task is None else [report.last_task])):
        one_of("report.tasks", task, tasks, its)
    for helper in named("report.helpers", report.helpers):
        one_of("report.helpers", helper, _HELPERS, f"a step gives {', '.join(_HELPERS)} besides its result")
    named("report.selected", report.selected)
    count(
        "report.swallowed", report.swallowed, f"a step lets at most {ERRORS_PER_STEP} errors pass", most=ERRORS_PER_STEP
    )
    _tries(report.tries, tasks, its)
    _accumulated(report.accumulate, step)
    found = references.one("report.ref", report.ref, media_types=(JSON,))
    found += references.many("report.artifacts", report.artifacts)
    return found + shared_values.refs_of("report.ctx_writes", report.ctx_writes)


def _tries(tries: list[dict[str, Any]], tasks: list[str], its: str) -> None:
    for tried in tries:
        one_of("report.tries", named("report.tries", tried).get("task"), tasks, its)
        count("report.tries", tried.get("tries"), "a task is tried at most 1000000 times", most=ERRORS_PER_STEP)
        errors = tried.get("errors")
        if not isinstance(errors, list | tuple) or not all(isinstance(one, str) for one in errors):
            refuse("report.tries", errors, "the errors of a task that was tried again are words")
    if json_bytes(tries) > TRIES_BYTES:
        refuse("report.tries", len(tries), f"they take more than {TRIES_BYTES} bytes")


def _accumulated(accumulate: dict[str, Any] | None, step: Step) -> None:
    output = step.tasks[-1].output if step.tasks else None
    declared = None if output is None or output.accumulate is None else msgspec.to_builtins(output.accumulate)
    if accumulate is not None and accumulate != declared:
        refuse("report.accumulate", accumulate, f"step {step.name} says {declared}")


def started(grant: CommandGrant, application_id: str, job_tag: str) -> None:
    """Refuse a tag that is not this attempt's own: whoever comes after stops what runs under it."""
    name("application_id", application_id)
    own = tag_of(grant)
    if job_tag != own:
        refuse("job_tag", job_tag, f"the tag of this attempt is {own}")


def tag_of(grant: CommandGrant) -> str:
    """Return the name that Spark's jobs of an attempt carry."""
    return f"noetl-{errand_of(grant)}-{grant.attempt}"


def errand_of(grant: CommandGrant) -> str:
    """Return the name that a driver knows the work on a command by."""
    return f"frames-{grant.execution_id}-{grant.issued_event_id}"


def reason(given: str, delay_seconds: float) -> str:
    """Return why an attempt came to nothing, as an event may say it."""
    if not 0 <= delay_seconds <= LONGEST_DELAY:
        refuse("delay_seconds", delay_seconds, f"an attempt waits 0 to {LONGEST_DELAY:g} seconds")
    return shortened(given.replace("\x00", ""), REASON_CHARACTERS)


def child(grant: CommandGrant, wanted: Child, step: Step) -> None:
    """Refuse a child that no task of the step could ask for."""
    if not _STARTS_CHILDREN & {task.kind for task in step.tasks}:
        refuse("child.path", wanted.path, f"no task of step {grant.step} runs a playbook")
    name("child.path", wanted.path)
    name("child.key", wanted.key)
    named("child.payload", wanted.payload)
    if wanted.return_step is not None:
        name("child.return_step", wanted.return_step)
