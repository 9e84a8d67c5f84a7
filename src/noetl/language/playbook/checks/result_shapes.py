"""What tasks come to: the fields that the result of each kind can have, and no others. Declared here and nowhere else.

A kind that is not here can come to anything, as `python` does: nothing is said about what is read of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from noetl.language.playbook.model import Step, Task
from noetl.language.templates.result_view import REFERENCE_FIELDS


@dataclass(frozen=True, slots=True)
class ResultShape:
    """A mapping as the result of a task; what is None in `fields` can be anything."""

    what: str
    """What comes to it, in words."""
    fields: Mapping[str, ResultShape | None]
    numbered: Mapping[str, ResultShape | None] = field(default_factory=dict)
    """Fields of which there are several, by what stands before their number, such as `command_`."""

    def has(self, name: str) -> bool:
        """Tell whether a result can have a field."""
        return name in self.fields or self._numbered(name) is not None

    def below(self, name: str) -> ResultShape | None:
        """Return the shape of a field; None if it can be anything."""
        if name in self.fields:
            return self.fields[name]
        start = self._numbered(name)
        return None if start is None else self.numbered[start]

    def names(self) -> list[str]:
        """Return the names of the fields, as they are told."""
        return [*self.fields, *(f"{start}N" for start in self.numbered)]

    def with_fields(self, *names: str) -> ResultShape:
        """Return the shape with further fields that can be anything; a field it has stays what it is."""
        more = {name: None for name in names if name not in self.fields}
        return ResultShape(self.what, {**self.fields, **more}, self.numbered)

    def _numbered(self, name: str) -> str | None:
        return next((start for start in self.numbered if re.fullmatch(rf"{start}\d+", name)), None)


def _shape(what: str, *names: str, **numbered: ResultShape | None) -> ResultShape:
    return ResultShape(what, dict.fromkeys(names), numbered)


_ROWS: Final = ("rows", "row_count", "columns")
_STATEMENT: Final = _shape("a statement", "status", *_ROWS, "errors")
_REFERENCE: Final = ("uri", "sha256", "media_type", "bytes", "stored_sha256", "encoding", "rows", "schema_digest")

RESULTS: Final[Mapping[str, ResultShape]] = {
    "http": _shape("an http task", "status_code", "headers", "url", "elapsed", "data", "body"),
    "postgres": _shape("a postgres task", "status", *_ROWS, "types", "statement_count", "errors", command_=_STATEMENT),
    "duckdb": _shape("a duckdb task", "status", *_ROWS, "types"),
    "spark": _shape("a spark task", *_ROWS),
    "snowflake": _shape("a snowflake task", "status", *_ROWS, "statement_count", "errors", command_=_STATEMENT),
    "ducklake": _shape("a ducklake task", "status", *_ROWS),
    "gcs": _shape(
        "a gcs task", "status", "uri", "bucket", "object", "size", "content", "encoding", "prefix", "objects", "count"
    ),
    "container": _shape(
        "a container task",
        "status",
        "runtime",
        "job_name",
        "pod_name",
        "namespace",
        "exit_code",
        "output",
        "execution_time",
        "reason",
    ),
    "transfer": _shape("a transfer task", "status", "rows_read", "rows_written", "chunks"),
    "shell": _shape("a shell task", "stdout", "stderr", "exit_code"),
    "mcp": _shape("an mcp task", "server", "endpoint", "method", "tool", "result", "structured", "text"),
    "agent": _shape("an agent task", "status", "framework", "entrypoint", "data", "execution_id", "duration", "error"),
    "secrets": _shape("a secrets task", "provider", "name", "version", "source", "value", "fields"),
    "subscription": _shape("a subscription task", "source", "messages", "count", "acked"),
    "noop": _shape("a noop task"),
}
"""By kind."""
_NATS: Final[Mapping[str, tuple[str, ...]]] = {
    "kv_get": ("bucket", "key", "value", "revision"),
    "kv_put": ("bucket", "key", "revision"),
    "kv_keys": ("bucket", "keys", "count"),
    "kv_delete": ("bucket", "key", "deleted"),
    "object_get": ("bucket", "name", "value", "size"),
    "object_put": ("bucket", "name", "size", "digest"),
    "object_list": ("bucket", "objects", "count"),
    "object_delete": ("bucket", "name", "deleted"),
    "publish": ("subject", "bytes"),
    "js_publish": ("stream", "sequence", "duplicate"),
    "js_get_msg": ("subject", "sequence", "value", "headers", "time"),
    "js_consume": ("stream", "messages", "count"),
}
NATS_RESULTS: Final = {name: _shape(f"a nats task with {name}", *fields) for name, fields in _NATS.items()}
"""By operation."""
STORED: Final = _shape("an artifact task with put", *_REFERENCE, *sorted(REFERENCE_FIELDS))
STARTED: Final = _shape("a playbook task that does not wait", "execution_id")
LOOP: Final = _shape("a loop", "total", "completed", "failed", "frames", "results", "stats")
OF_STEPS: Final = ("data", "context", "result", "status", "_ref", "_store", "accumulated", "error", "results")
"""What is read of every step beside the fields of its result."""
OUTPUT: Final = ("status", "data", "ref", "error", "meta", "http", "pg", "py", "shell", "child", "artifacts")
"""What `output` has beside the result."""


def shape_of_task(task: Task) -> ResultShape | None:
    """Return what a task comes to; None if it can be anything."""
    if task.kind == "nats":
        return NATS_RESULTS.get(str(task.options.get("operation")))
    if task.kind == "artifact":
        return STORED if task.options.get("action") == "put" else None
    if task.kind == "playbook":
        says = {"return_step", "result_step", "return_result"} & task.options.keys()
        return STARTED if task.options.get("wait") is False and not says else None
    return RESULTS.get(task.kind)


def shape_of_tasks(step: Step) -> ResultShape | None:
    """Return what the tasks of a step come to: the last that did something, or one that ends the list before."""
    worked = [task for task in step.tasks if task.kind != "noop"]
    if not worked:
        return RESULTS["noop"]
    endings = [*worked[-1:], *(task for task in worked[:-1] if _may_end(task))]
    if any(_may_end(task) for task in step.tasks if task.kind == "noop"):
        return None  # whatever came before the noop
    shapes = [shape_of_task(task) for task in endings]
    found = [shape for shape in shapes if shape is not None]
    if len(found) < len(shapes):
        return None
    first, *others = found
    for other in others:
        first = ResultShape(first.what, {**other.fields, **first.fields}, {**other.numbered, **first.numbered})
    return first


def shape_of_step(step: Step) -> ResultShape | None:
    """Return what is read of a step by its name; None if it can be anything."""
    shape = LOOP if step.loop is not None else shape_of_tasks(step)
    if shape is None:
        return None
    chosen = [select.name for task in step.tasks if task.output is not None for select in task.output.select]
    named = shape.with_fields(*OF_STEPS, *chosen)
    if step.is_sequence and step.loop is None:
        tasks = ResultShape("the list of tasks", {task.name: shape_of_task(task) for task in step.tasks})
        named = ResultShape(named.what, {**named.fields, "results": tasks}, named.numbered)
    # `data` is the whole result, unless the result has a field of that name; so is `result`.
    all_of_it = {name: shape for name in ("data", "result") if name not in shape.fields}
    return ResultShape(named.what, {**named.fields, **all_of_it}, named.numbered)


def _may_end(task: Task) -> bool:
    return task.policy is not None and any(rule.then.do == "break" for rule in task.policy.rules)
