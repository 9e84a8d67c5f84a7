"""How what goes wrong around a task is put as a problem: errors and verdicts go in, problems without secrets come out."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from noetl.engine.tools.outcome import Outcome, Problem
from noetl.engine.worker.compiled_step import CompiledStep, CompiledTask
from noetl.engine.worker.policy import Verdict
from noetl.errors import NoetlError, TemplateFailed


def unrendered(
    error: TemplateFailed, step: CompiledStep, finished: Iterable[str], task: CompiledTask | None
) -> Problem:
    """Say that a template cannot be rendered, and which task has to run first where that is the cause."""
    source = None if task is None else task.kind
    missing = str(error.details.get("missing") or "")
    name = missing.removeprefix("results.").partition(".")[0].partition("[")[0]
    if name in step.labels and name not in finished:
        return Problem(
            kind="transform",
            message=f"{error.message}: the task {name!r} has not run yet (do: jump, to: {name} runs it first)",
            code="REFERENCE_NOT_AVAILABLE",
            source=source,
            details={"missing": missing, "jump_to": name},
        )
    details = {"missing": missing} if missing else {}
    return Problem(kind="transform", message=error.message, code="template_failed", source=source, details=details)


def undecided(problem: Problem, outcome: Outcome) -> Problem:
    """Say that a rule cannot be read, without hiding what went wrong first."""
    first = outcome.error
    if first is None:
        return problem
    message = f"{problem.message}; the task itself had failed: {first.message}"
    details = {**problem.details, "task_error": msgspec.to_builtins(first)}
    return msgspec.structs.replace(problem, message=message, details=details)


def unselected(error: TemplateFailed, task: CompiledTask) -> Problem:
    """Say that a result lacks what is to be selected from it."""
    message = f"{task.where}, field output.select: {error.message}"
    return Problem(
        kind="schema", message=message, code="selection_failed", source=task.kind, details=dict(error.details)
    )


def refused(task: CompiledTask, outcome: Outcome, verdict: Verdict) -> Problem:
    """Say why a task's policy ended the sequence."""
    if outcome.error is not None:
        return outcome.error
    rule = "its policy" if verdict.rule_index is None else f"rule {verdict.rule_index + 1} of its policy"
    if verdict.is_exhausted:
        message, code = f"{task.where}: {rule} still says retry after all tries", "retries_exhausted"
    else:
        message, code = f"{task.where}: {rule} says fail", "failed_by_policy"
    return Problem(kind="unknown", message=message, code=code, source=task.kind)


def timed_out(task: CompiledTask, seconds: float) -> Problem:
    """Say that a try took too long."""
    message = f"{task.where}: not done within {seconds:g} seconds"
    return Problem(kind="timeout", message=message, retryable=True, code="task_timeout", source=task.kind)


def unknown_tool(task: CompiledTask, known: Iterable[str]) -> Problem:
    """Say that no tool of a kind is there."""
    message = f"{task.where}: this worker has no tool of the kind {task.kind!r} (it has: {', '.join(sorted(known))})"
    return Problem(kind="client_error", message=message, code="unknown_tool", source=task.kind)


def unknown_label(step: CompiledStep, label: str | None) -> Problem:
    """Say that a jump leads nowhere."""
    message = f"{step.where}: there is no task {label!r} to jump to"
    return Problem(kind="client_error", message=message, code="unknown_label")


def endless(task: CompiledTask) -> Problem:
    """Say that a sequence ran too many tasks."""
    message = f"{task.where}: the sequence ran more tasks than allowed: give its jumps a condition that ends"
    return Problem(kind="client_error", message=message, code="too_many_runs", source=task.kind)


def idle(task: CompiledTask, most: int) -> Problem:
    """Say that the tasks of a sequence turned without doing anything."""
    message = (
        f"{task.where}: {most} tries of tasks in a row did nothing: give jumps and retries a condition that ends,"
        f" or raise executor.spec.policy.limits.steps_without_work above {most}"
    )
    return Problem(kind="client_error", message=message, code="too_many_runs", source=task.kind)


def broken_off(task: CompiledTask, error: Exception) -> Problem:
    """Say that a tool raised instead of answering."""
    name = type(error).__name__
    if isinstance(error, NoetlError):
        # Our own errors are written to be read by anyone; those of libraries may quote a secret.
        is_transient = error.disposition == "transient"
        return Problem(
            kind="connection" if is_transient else "unknown",
            message=f"{task.where}: {error.message}",
            retryable=is_transient,
            code=error.code,
            source=task.kind,
            exception_type=name,
        )
    message = f"{task.where}: the {task.kind} tool broke off with {name}"
    return Problem(kind="unknown", message=message, code="tool_defect", source=task.kind, exception_type=name)
