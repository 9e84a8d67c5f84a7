"""The kinds of tasks and the fields each has of its own, with the one name every spelling is handed on under.

In `Task.options`: http has `url`, `method`, `headers`, `params`, `body` with `body_kind` (body, json, data or form);
postgres, duckdb, ducklake and snowflake have `command`, a text or a list; shell has `cmds`, a text or a list; workbook has `name`; playbook
has no `payload`, which is its `input`; nats has `value`, `consumer` and, for objects, `name`. A `timeout` of the kind
becomes `Task.timeout`, unless `spec.timeout` is given or the kind waits by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.language.grammar.shapes import Record
from noetl.language.playbook.grammar.task import TASK_FIELDS, TASK_HOMES, TASK_REMOVED
from noetl.language.playbook.kinds.data import DATA_KINDS
from noetl.language.playbook.kinds.kind import Kind
from noetl.language.playbook.kinds.programs import CONTAINER_KINDS, WORK_KINDS
from noetl.language.playbook.kinds.services import SERVICE_KINDS, STORE_KINDS

KINDS: Final[Mapping[str, Kind]] = {**DATA_KINDS, **STORE_KINDS, **SERVICE_KINDS, **WORK_KINDS, **CONTAINER_KINDS}
"""What this build can run."""

NOT_RUNNABLE: Final[Mapping[str, str]] = {
    "cursor_worker": "it is a part of older engines; write loop: {cursor: …} in the step",
    "gateway": "a gateway is a server: ask it with kind: http, and let it start playbooks with POST /api/execute",
    "iterator": "write loop: {in: …, iterator: …} in the step, beside the tool",
    "playbooks": "write kind: playbook in a step with a loop over what is to be run",
    "rhai": "write kind: python, whose code runs in a process of its own",
    "task_sequence": "it is a part of older engines; write the tasks as a list under tool",
}
"""Kinds of the language that this build does not have, with what to write instead."""

ONLY_READ: Final = ("wasm",)
"""Kinds that this build reads and cannot run: a run fails at the first task of one."""


def task_record(kind: str) -> Record:
    """Return the fields of a task of a kind; those of a kind that is not of this build are not checked."""
    own = KINDS.get(kind)
    if own is None:
        return Record(f"{kind} task", TASK_FIELDS, extra="kept")
    return Record(
        f"{kind} task",
        {**TASK_FIELDS, **own.fields},
        own.doc,
        removed=TASK_REMOVED,
        homes={"timeout": "spec.timeout", **TASK_HOMES},
        alternatives=own.alternatives,
    )


def handed_on_as(kind: str) -> dict[str, str]:
    """Return under which name each alternative field of a kind is handed on."""
    own = KINDS.get(kind)
    return {} if own is None else {name: into for group in own.alternatives for name, into in group.into.items()}
