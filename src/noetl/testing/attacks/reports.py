"""Forged reports: what a worker sends that holds a good lease and lies about what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from noetl.model.payload_ref import PayloadRef, payload_uri
from noetl.model.stream import Scope

MISSING: Final = "a" * 64
"""The digest of an object that nobody stored."""


def missing_ref(scope: Scope, **fields: Any) -> dict[str, Any]:
    """Return a well-formed reference to an object that is not there, as JSON has it."""
    sound = {
        "uri": payload_uri(scope.tenant_id, scope.organization_id, MISSING),
        "sha256": MISSING,
        "stored_sha256": MISSING,
        "media_type": "application/vnd.apache.arrow.stream",
        "bytes": 10,
        "rows": 2,
    }
    return {**sound, **fields}


def frame_reports(
    scope: Scope, stored: PayloadRef, rows: int, first_index: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give reports of a frame with so many rows, each with the field that is wrong; `stored` is an object that is there."""
    good: dict[str, Any] = {"row_count": rows}
    ref = {
        "uri": stored.uri, "sha256": stored.sha256, "stored_sha256": stored.stored_sha256, "bytes": stored.bytes,
        "media_type": "application/vnd.apache.arrow.stream",
    }  # fmt: skip
    for count in (999, -7, 0, rows + 1, 2**31, 2**62):
        yield "report.row_count", {"row_count": count}
    for count in (-1, rows + 1, 2**40):
        yield "report.failed_count", {**good, "failed_count": count}
    for count in (-1, 2**62):
        yield "report.swallowed", {**good, "swallowed": count}
    yield "report.output", {**good, "output": missing_ref(scope)}
    yield "report.output", {**good, "output": missing_ref(scope, uri=payload_uri("other", "default", MISSING))}
    yield "report.output", {**good, "output": missing_ref(scope, sha256="../../etc/passwd")}
    yield "report.output.bytes", {**good, "output": {**ref, "bytes": stored.bytes + 1}}
    yield "report.output", {**good, "output": {**ref, "bytes": -1}}
    yield "report.output.rows", {**good, "output": {**ref, "rows": 999}}
    yield "report.output.media_type", {**good, "output": {**ref, "media_type": "text/html"}}
    yield "report.artifacts[0]", {**good, "artifacts": [missing_ref(scope)]}
    yield "report.rest", {**good, "rest": missing_ref(scope, media_type="application/json")}
    yield "report.ctx_writes.a", {**good, "ctx_writes": {"a": {"noetl.payload": {"uri": 7}}}}
    yield "report.ctx_writes.a", {**good, "ctx_writes": {"a": {"noetl.payload": missing_ref(scope)}}}
    yield "a path of report.ctx_writes", {**good, "ctx_writes": {"": 1}}
    yield "the depth of report.ctx_writes", {**good, "ctx_writes": {"." * 1000: 1}}
    one = {**good, "failed_count": 1}
    yield "report.errors", {**good, "errors": [{"message": "nobody failed"}]}
    yield "report.errors", {**one, "errors": [{}, {}]}
    for index in (first_index - 1, first_index + rows, "first", None, 2**62):
        yield "report.errors[0].index", {**one, "errors": [{"index": index, "message": "no"}]}
    yield "report.errors[0].message", {**one, "errors": [{"message": {"a": 1}}]}
    yield "report.errors[0].kind", {**one, "errors": [{"message": "no", "kind": "x" * 5000}]}


def command_reports(scope: Scope, command_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give reports of a command at its first attempt, each with the field that is wrong."""
    good: dict[str, Any] = {"command_id": command_id, "attempt": 1, "status": "ok"}
    yield "report.command_id", {**good, "command_id": "another"}
    yield "report.attempt", {**good, "attempt": 2}
    for took in (-1.0, 1e300):
        yield "report.duration_ms", {**good, "duration_ms": took}
    yield "report.swallowed", {**good, "swallowed": -3}
    yield "report.tasks", {**good, "tasks": {"of another step": 1}, "last_task": None}
    yield "report.helpers", {**good, "helpers": {"status": "ok"}}
    yield "report.accumulate", {**good, "accumulate": {"strategy": "concat"}}
    yield "report.tries", {**good, "tries": [{"task": "nobody's", "tries": 1, "errors": []}]}
    yield "report.ref", {**good, "ref": missing_ref(scope, media_type="application/json")}
    yield "report.ref.media_type", {**good, "ref": missing_ref(scope, media_type="application/vnd.noetl.frames+json")}
    yield "report.artifacts[0]", {**good, "artifacts": [missing_ref(scope)]}
    yield "report.error.message", {**good, "status": "error", "error": {"message": 7}}
    yield "report.ctx_writes.a", {**good, "ctx_writes": {"a": {"noetl.payload": 1}}}


def checkpoints(scope: Scope, done: int, rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give checkpoints of a frame of which `done` of its rows are known to be done, each with the field that is wrong."""
    for count in (done - 1, rows + 1, -1, "two", None, 2**62):
        yield "cursor.done", {"done": count}
    yield "cursor.swallowed", {"done": rows, "swallowed": -1}
    yield "cursor.output", {"done": rows, "output": missing_ref(scope, rows=rows)}
    yield "cursor.output.rows", {"done": rows, "output": missing_ref(scope, rows=rows + 5)}
    yield "cursor", {"done": rows, "output": {"uri": 1}}
    yield "cursor", {"done": rows, "unheard_of": 1}
    yield "cursor.set", {"done": rows, "set": [1]}
    yield "cursor.artifacts[0]", {"done": rows, "artifacts": [missing_ref(scope)]}
