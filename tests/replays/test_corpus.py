"""The corpus: frozen histories must give the frozen rows and checksums, here and in any other implementation."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import rfc8785
from blake3 import blake3

from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.projections.stores.memory import MemoryProjectionStore
from noetl.kernel.replay.as_of import AsOf
from noetl.kernel.replay.replay import Replay
from noetl.model.canonical import canonical_json
from noetl.model.event import Event, from_json, to_json
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.testing.samples.frozen_ledger import FrozenLedger

HERE = Path(__file__).parent
HISTORIES = sorted(place.parent.name for place in HERE.glob("*/events.jsonl"))


def load(path: Path) -> ModuleType:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


invoices = load(HERE / "invoices.py")


def events_of(name: str) -> list[Event]:
    return [from_json(msgspec.json.decode(line)) for line in (HERE / name / "events.jsonl").read_bytes().splitlines()]


def expected_of(name: str) -> dict[str, Any]:
    found = json.loads((HERE / name / "expected.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def replay_of(events: list[Event]) -> Replay:
    ledger = FrozenLedger(events)
    return Replay(ledger, MemoryPayloadStore(), MemoryProjectionStore(), invoices.folds(), invoices.upcasters())


def scope_of(name: str) -> Scope:
    return Scope(*name.split("/"))


def test_there_are_at_least_four_histories() -> None:
    assert {"simple_run", "framed_loop", "partial_fanout", "business_objects"} <= set(HISTORIES)


@pytest.mark.parametrize("name", HISTORIES)
def test_an_event_is_written_back_byte_for_byte(name: str) -> None:
    lines = (HERE / name / "events.jsonl").read_bytes().splitlines()
    assert [canonical_json(to_json(event)) for event in events_of(name)] == lines


@pytest.mark.parametrize("name", HISTORIES)
async def test_every_cut_gives_the_frozen_checksums(name: str) -> None:
    """INV-21."""
    replay, expected = replay_of(events_of(name)), expected_of(name)
    assert len(expected["cuts"]) == 3
    for cut in expected["cuts"]:
        for scope, sums in cut["scopes"].items():
            as_of = AsOf(mark=Mark.parse(cut["mark"]))
            state = await replay.state(scope_of(scope), as_of=as_of, projection="all", rows="none")
            assert (state.checksums, state.checksum) == (sums["projections"], sums["all"])
            assert state.fold_versions == expected["fold_versions"]
            assert state.upcaster_digest == expected["upcaster_digest"]


@pytest.mark.parametrize("name", HISTORIES)
async def test_the_end_gives_the_frozen_rows(name: str) -> None:
    replay = replay_of(events_of(name))
    for scope, rows in expected_of(name)["rows"].items():
        state = await replay.state(scope_of(scope), projection="all")
        assert canonical_json(state.rows) == canonical_json(rows)


@pytest.mark.parametrize("name", HISTORIES)
def test_the_rules_of_the_readme_give_the_frozen_checksums(name: str) -> None:
    """Another canonical JSON and nothing of the product: what an implementation in another language would do."""
    expected = expected_of(name)
    for scope, projections in expected["rows"].items():
        tenant, organization = scope.split("/")
        sums = {}
        for projection, rows in projections.items():
            total = 0
            for row in rows:
                said = {
                    "id": row["id"],
                    "organization_id": organization,
                    "projection": projection,
                    "row": row["row"],
                    "tenant_id": tenant,
                    "version": row["version"],
                }
                digest = blake3(rfc8785.dumps(said)).digest()
                assert digest.hex() == row["checksum"]
                total = (total + int.from_bytes(digest, "big")) % 2**256
            sums[projection] = {"rows": len(rows), "sum": f"{total:064x}"}
        last = expected["cuts"][-1]["scopes"][scope]
        assert {name: part["sum"] for name, part in sums.items()} == {
            name: part["checksum"] for name, part in last["projections"].items()
        }
        assert blake3(rfc8785.dumps(sums)).hexdigest() == last["all"]


@pytest.mark.parametrize("name", HISTORIES)
def test_every_payload_lies_under_its_digest_and_every_reference_has_one(name: str) -> None:
    kept = {path.name: path.read_bytes() for path in (HERE / name / "payloads").glob("*")}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in kept.items())
    referred = {event.payload_ref.sha256 for event in events_of(name) if event.payload_ref is not None}
    assert referred == set(kept)


def test_the_corpus_is_made_the_same_again(tmp_path: Path) -> None:
    made = load(HERE.parent.parent / "tools" / "make_replay_corpus.py")
    # The maker runs event loops of its own, as it does on the command line.
    made.write(tmp_path, invoices.folds(), invoices.upcasters())
    frozen = {
        path.relative_to(HERE): path.read_bytes()
        for name in HISTORIES
        for path in (HERE / name).rglob("*")
        if path.is_file()
    }
    again = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert again == frozen


def test_the_same_history_in_another_order_of_shards_gives_the_same() -> None:
    events = events_of("simple_run")

    async def checksum(told: list[Event]) -> list[str]:
        replay = replay_of(told)
        return [
            (await replay.state(scope_of(name), projection="all")).checksum for name in ("default/default", "acme/care")
        ]

    assert asyncio.run(checksum(events)) == asyncio.run(checksum(events[::-1]))
