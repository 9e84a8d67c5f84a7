"""What a run came to, as it leaves the worker: without secrets, rows as one Arrow table, large data as payloads."""

from __future__ import annotations

import logging
import traceback
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from noetl.engine.dispatch.grants import CommandGrant
from noetl.engine.dispatch.loops.results import rows_of
from noetl.engine.plan.trigger import CommandEnded
from noetl.engine.tools.outcome import Problem
from noetl.engine.tools.plain import plain
from noetl.engine.worker.frame_rows import RowEnd
from noetl.engine.worker.sequence import SequenceResult
from noetl.engine.worker.services import Services
from noetl.errors import NoetlError
from noetl.kernel.payloads.arrow_bounds import decode_bounded
from noetl.kernel.payloads.codec import JSON, EncodedTable, encode_table
from noetl.language.playbook.model import Step
from noetl.model.canonical import canonical_json
from noetl.model.payload_ref import PayloadRef

_log = logging.getLogger(__name__)


async def report_of(
    services: Services,
    grant: CommandGrant,
    step: Step,
    result: SequenceResult,
    duration_ms: float,
    *,
    by_task: bool = False,
) -> CommandEnded:
    """Return the report about a command; `by_task` it tells what each of its tasks came to."""
    redact = services.secrets.redaction.redact
    output = step.tasks[-1].output
    limit = services.inline_bytes if output is None else min(output.inline_max_bytes, services.inline_bytes)
    selected: dict[str, Any] = {}
    data = redact(result.data)
    if output is not None and output.select and isinstance(data, dict):
        selected = data
        data = redact(result.results.get(step.tasks[-1].name, data))
    data, ref = await _stored(services, data, limit)
    accumulate = None
    if output is not None and output.accumulate is not None:
        accumulate = msgspec.to_builtins(output.accumulate)
    return CommandEnded(
        command_id=grant.command_id,
        attempt=grant.attempt,
        status=result.status,
        data=data if ref is None or not selected else None,
        ref=ref,
        selected=selected,
        tasks=_others(result, redact) if by_task else {},
        last_task=result.last if by_task else None,
        error=None if result.error is None else redact(problem_fields(result.error)),
        helpers=redact({name: result.output[name] for name in ("http", "pg", "py") if name in result.output}),
        ctx_writes=redact(plain(result.ctx_writes)) if result.ctx_writes else {},
        swallowed=result.swallowed,
        tries=[msgspec.to_builtins(tried) for tried in result.tries],
        accumulate=accumulate,
        artifacts=result.artifacts,
        duration_ms=duration_ms,
    )


def _others(result: SequenceResult, redact: Callable[[Any], Any]) -> dict[str, Any]:
    others = {name: data for name, data in result.results.items() if name != result.last}
    return plain(redact(others))  # type: ignore[no-any-return]


def failure_of(services: Services, grant: CommandGrant, problem: Problem, duration_ms: float) -> CommandEnded:
    """Return the report about a command that failed before or outside its tasks."""
    return CommandEnded(
        command_id=grant.command_id,
        attempt=grant.attempt,
        status="error",
        error=services.secrets.redaction.redact(problem_fields(problem)),
        duration_ms=duration_ms,
    )


def defect_of(services: Services, step: str, error: Exception) -> Problem:
    """Say what ended work outside its tasks; only our own words are shown, those of other errors may quote anything."""
    name = type(error).__name__
    if isinstance(error, NoetlError):
        return Problem(kind="unknown", message=error.message, code=error.code)
    if isinstance(error, ValueError):
        return Problem(kind="transform", message=f"step {step}: {error}", code="value_invalid", exception_type=name)
    told = "".join(traceback.format_exception(error))
    _log.error("step %s: %s", step, services.secrets.redaction.redact(told))
    message = f"step {step}: the worker broke off with {name}"
    return Problem(kind="unknown", message=message, code="worker_defect", exception_type=name)


def problem_fields(problem: Problem) -> dict[str, Any]:
    """Return a problem as templates and events show it, every field there."""
    fields: dict[str, Any] = {name: getattr(problem, name) for name in problem.__struct_fields__}
    fields["details"] = plain(fields["details"])
    return fields


async def _stored(services: Services, data: Any, limit: int) -> tuple[Any, PayloadRef | None]:
    if data is None or isinstance(data, bool | int):
        return data, None
    try:
        encoded = canonical_json(data)
    except Exception:
        # Whatever JSON cannot carry exactly, such as integers above 2^53, goes as text.
        data = plain(data)
        encoded = canonical_json(data)
    if len(encoded) <= limit:
        return data, None
    return None, await services.store.store(services.scope, encoded, JSON)


_PLAIN = {str, bool, int, float}


def table_of(rows: list[RowEnd], redact: Any) -> EncodedTable:
    """Return the table of a frame's rows, encoded. Data of one shape are columns of their types, others JSON text."""
    values = redact([row.data for row in rows])
    data, form = _column(values)
    schema = pa.schema(
        [
            pa.field("index", pa.int64()),
            pa.field("status", pa.string()),
            pa.field("error", pa.string()),
            pa.field("data", data.type, metadata={b"noetl.form": form}),
        ]
    )
    errors = [None if row.error is None else redact(row.error.message) for row in rows]
    numbers = array("q", [row.index for row in rows])
    table = pa.table(
        [
            pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(numbers)]),
            _texts([row.status for row in rows]),
            _texts(errors),
            data,
        ],
        schema=schema,
    )
    return encode_table(table.combine_chunks())


def ends_of(data: bytes | memoryview) -> list[RowEnd]:
    """Return the rows of such a table; of a problem only its words are left."""
    table = decode_bounded(data, flat="data")
    index, status, error = (table.column(name).to_pylist() for name in ("index", "status", "error"))
    problems = [None if words is None else Problem(kind="unknown", message=words) for words in error]
    return [RowEnd(*row) for row in zip(index, status, rows_of(data), problems, strict=True)]


def _column(values: list[Any]) -> tuple[Any, bytes]:
    if all(value is None for value in values):
        return pa.nulls(len(values)), b"typed"
    types = {type(value) for value in values if value is not None}
    # Of one type only: among floats an integer would come back as a float.
    if len(types) == 1 and types <= _PLAIN:
        try:
            return _texts(values) if types == {str} else pa.array(values), b"typed"
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
            pass
    # Mappings of differing shapes would gain and lose fields as a struct, so they stay as they are written.
    texts = [None if value is None else _text(value) for value in values]
    return _texts(texts), b"json"


def _texts(values: list[str | None]) -> Any:
    # Where pandas is installed, `pa.array` loads all of it first to ask whether a list is one of its own.
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def _text(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(plain(value)).decode()
