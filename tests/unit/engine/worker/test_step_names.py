"""What a worker fetches of earlier results: what its templates look at, and the rest only when code asks for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.engine.plan.playing import HEAD

from noetl.engine.dispatch.grants import CommandGrant, StepContext
from noetl.engine.plan.state import Result
from noetl.engine.tools.port import Held
from noetl.engine.worker.frame_rows import RowEnd
from noetl.engine.worker.reports import table_of
from noetl.engine.worker.step_names import names_without_secrets
from noetl.kernel.payloads.codec import ARROW_STREAM, JSON, encode_json
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.language.playbook.parse import parse
from noetl.model.payload_ref import FRAMES, PayloadRef
from noetl.model.stream import Scope

SCOPE = Scope("acme", "sales")
COUNTS = {"total": 3, "completed": 2, "failed": 1, "frames": 2}


class Noting(MemoryPayloadStore):
    """Notes what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def fetch(self, scope: Scope, ref: PayloadRef) -> bytes:
        self.read.append({FRAMES: "l", JSON: "big", ARROW_STREAM: "frame"}[ref.media_type])
        return await super().fetch(scope, ref)


async def results(store: MemoryPayloadStore) -> dict[str, Result]:
    table = table_of([RowEnd(0, "ok", 5), RowEnd(1, "ok", 6)], lambda value: value)
    frame = await store.store(SCOPE, table.data, ARROW_STREAM, rows=2)
    parts = [{"first_index": 0, "rows": 2, "ref": frame}, {"first_index": 2, "rows": 1, "ref": None}]
    manifest = await store.store(SCOPE, encode_json({"frames": [_plain(part) for part in parts]}), FRAMES)
    big = await store.store(SCOPE, encode_json({"n": 1}), JSON)
    return {"l": Result(data=COUNTS, ref=manifest), "big": Result(ref=big), "small": Result(data=7)}


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    return dict(msgspec.to_builtins(part))


async def names(store: MemoryPayloadStore, step: str) -> dict[str, Any]:
    playbook = parse(f"{HEAD}workflow:\n  - {step}\n").playbook
    grant = CommandGrant(
        execution_id=1, command_id="s/1/0", step="s", attempt=1, token="t", lease_seconds=1, catalog_id="c",
        issued_event_id=1, context=StepContext(workload={}, ctx={}, results=await results(store)),
    )  # fmt: skip
    return await names_without_secrets(SCOPE, store, grant, playbook)


@pytest.mark.parametrize(
    ("step", "read"),
    [
        ("{step: s, tool: {kind: shell, command: 'echo {{ l.total }} {{ l._ref.uri }} {{ small.data }}'}}", []),
        ("{step: s, tool: {kind: shell, command: 'echo {{ l.results }}'}}", ["l", "frame"]),
        ("{step: s, tool: {kind: shell, command: 'echo {{ big.n }}'}}", ["big"]),
        ("{step: s, loop: {in: '{{ l }}', iterator: i}, tool: {kind: noop}, set: {ctx.n: '{{ big.n }}'}}", []),
        ("{step: s, tool: {kind: duckdb, input: {t: '{{ l }}'}, command: 'SELECT * FROM t'}}", []),
        ("{step: s, input: {t: '{{ l }}'}, tool: {kind: duckdb, command: 'SELECT * FROM t'}}", []),
        (
            "{step: s, tool: {kind: duckdb, input: {t: '{{ l }}'}, command: 'SELECT {{ input.t.results[0] }}'}}",
            ["l", "frame"],
        ),
        ("{step: s, tool: {kind: duckdb, input: {t: '{{ l | tojson }}'}, command: 'SELECT 1'}}", ["l", "frame"]),
        ("{step: s, tool: {kind: python, code: 'def main(l): return l'}}", []),
        (
            "{step: s, tool: {kind: python, input: {rows: '{{ l.results }}'}, code: 'result = \"{{ no template\"'}}",
            ["l", "frame"],
        ),
    ],
)
async def test_only_what_templates_look_at_is_fetched(step: str, read: list[str]) -> None:
    store = Noting()
    found = await names(store, step)
    assert store.read == read
    if "l" in read:
        assert found["l"]["results"] == found["l"]["data"]["results"] == [5, 6, None]


async def test_code_that_asks_for_a_name_gets_the_whole_of_it_once_fetched() -> None:
    store = Noting()
    found = await names(store, "{step: s, tool: {kind: python, code: 'def main(l, big, small): return l'}}")
    held, big = found["l"], found["big"]
    assert isinstance(held, Held)
    assert isinstance(big, Held)
    assert (held["total"], "results" in held, store.read) == (3, False, [])
    assert (await held.whole())["results"] == [5, 6, None]
    assert (await held.whole())["total"] == 3
    assert (await big.whole())["n"] == 1
    assert store.read == ["l", "frame", "big"]
    assert (found["small"].value, found["small"]["data"], found["small"]["status"]) == (7, 7, "ok")
    assert "_ref" not in found["small"]
