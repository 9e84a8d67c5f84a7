"""What `noetl explain` says of rows: as a tree for a person, as facts for a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from noetl.pipelines.explain.values import Explained, ExplainedRow, Maker

_SHOWN_INPUTS = 20
_SHOWN_VALUES = 8


def facts(found: Explained) -> dict[str, Any]:
    """Return an explanation as plain values."""
    rows = [_row_facts(row) for row in found.rows]
    makers = [msgspec.to_builtins(maker) for maker in found.makers]
    told: dict[str, Any] = msgspec.structs.asdict(found)
    return {**told, "rows": rows, "makers": makers}


def text(found: Explained) -> str:
    """Return an explanation as a tree."""
    if not found.rows:
        return f"no row of {found.dataset} has {found.where}\n"
    makers = {(maker.task_id, maker.attempt): maker for maker in found.makers}
    told: set[tuple[str, int]] = set()
    lines: list[str] = []
    for row in found.rows:
        who = (row.task_id, row.attempt)
        lines += _row(found, row, makers[who], whole=who not in told)
        told.add(who)
    if found.more:
        lines.append("… there are more such rows; -n shows more of them")
    return "".join(f"{line}\n" for line in lines)


def _row_facts(row: ExplainedRow) -> dict[str, Any]:
    frame = None if row.frame is None else msgspec.to_builtins(row.frame)
    return {**msgspec.structs.asdict(row), "frame": frame}


def _row(found: Explained, row: ExplainedRow, maker: Maker, *, whole: bool) -> Iterator[str]:
    yield f"{found.dataset}: {_values(row.values)}"
    yield f"├─ generation {found.generation}"
    yield f"├─ partition {row.partition_key}, version {row.version}, committed {row.committed_at:%Y-%m-%d %H:%M:%S}"
    yield f"│  └─ row {row.place} of {row.file}"
    if row.frame is not None:
        where = f" of step {row.frame.step}" if row.frame.step else ""
        yield f"├─ frame {row.frame.frame_id or '-'}{where} in execution {row.frame.execution_id}"
        yield f"│  └─ payload {row.frame.payload}"
    if not whole:
        yield f"└─ task {row.task_id}, attempt {row.attempt}, as told above"
        return
    yield f"└─ task {maker.task_id}, attempt {maker.attempt} of {maker.dag}.{maker.job}"
    for branch, below in _branches(_task(maker)):
        yield f"   {branch[0]}{branch[1]}"
        yield from (f"   {line}" for line in below)


def _task(maker: Maker) -> Iterator[tuple[str, list[str]]]:
    yield f"done by {maker.worker or 'somebody'}" + (f" in {maker.application_id}" if maker.application_id else ""), []
    code = maker.code
    yield (
        f"code {code.operator}, job {code.job_hash[:12]}",
        [f"DAG version {code.dag_version_id}", f"bundle {code.bundle_digest}", f"Python {code.code_digest or 'none'}"],
    )
    if maker.playbook_execution is not None:
        yield f"ran the playbook {maker.playbook.get('playbook')} as execution {maker.playbook_execution}", []
    if maker.sent is not None:
        yield f"was sent {maker.sent.get('uri')}", []
    if maker.inputs:
        read = [
            f"{one.dataset} {one.partition_key} at version {one.version}, made by task {one.task_id}"
            for one in maker.inputs[:_SHOWN_INPUTS]
        ]
        more = len(maker.inputs) - _SHOWN_INPUTS
        yield "read", read + ([f"… and {more} more partitions"] if more > 0 else [])
    yield "because", [f"{one.said} ({one.event_type} {one.event_id})" for one in maker.causes]


def _branches(parts: Iterator[tuple[str, list[str]]]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    every = list(parts)
    for place, (line, below) in enumerate(every):
        last = place == len(every) - 1
        bar = "   " if last else "│  "
        yield ("└─ " if last else "├─ ", line), [f"{bar}{one}" for one in _listed(below)]


def _listed(lines: Sequence[str]) -> list[str]:
    return [("└─ " if place == len(lines) - 1 else "├─ ") + line for place, line in enumerate(lines)]


def _values(values: dict[str, Any]) -> str:
    shown = [f"{name} = {value!r}" for name, value in list(values.items())[:_SHOWN_VALUES]]
    return ", ".join(shown) + (", …" if len(values) > _SHOWN_VALUES else "")
