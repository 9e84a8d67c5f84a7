"""The row of a draft, the same for ever, and the digest of what an append says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from noetl.errors import EventInvalid
from noetl.kernel.ledger.normalizer import content_digest, leaf_of, leaf_text, leaves, normalize
from noetl.model.envelope.columns import ROW_NAMES
from noetl.model.event import ID_FIELDS, INLINE_LIMIT, REFERENCE_FIELDS, Draft, Event
from noetl.model.ids import snowflake_time
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import PRODUCER, Drafts

DRAFTS = Drafts(Scope("acme", "care"), lambda: 348912345678901248)
META, ITEM = ROW_NAMES.index("meta"), ROW_NAMES.index("current_item")
NOW = datetime(2026, 5, 16, tzinfo=UTC)
OTHER: dict[type, Any] = {str: "other", int: 77, dict: {"a": 2}, datetime: NOW}
PINNED = "fdd44d02b1f50d781c260573ac446958ad74acc5cb110149f09974ac5c90dde9"
DIGESTS = slice(ROW_NAMES.index("payload_sha256"), ROW_NAMES.index("fields_sha256") + 1)


def item(**fields: Any) -> Draft:
    return DRAFTS.loop_item(7, 8, 0, **fields)


def digest(*drafts: Draft) -> bytes:
    return content_digest(drafts[0].stream_id, [normalize(draft) for draft in drafts])


def test_the_row_of_a_draft_is_pinned() -> None:
    ref = DRAFTS.payload("ab" * 32, rows=3, encoding="zstd")
    draft = item(
        causation_id=1,
        parent_execution_id=2,
        stage_id=3,
        frame_id=4,
        correlation_id="c",
        idempotency_key="k",
        catalog_id="cat",
        node_type="python",
        status="ok",
        command_id="cmd",
        shard_id="s",
        payload_ref=ref,
        fields_ref=DRAFTS.payload("cd" * 32),
        error="E",
        context={"b": 1.0, "a": "ü"},
        result={"n": 1e21},
    )
    assert normalize(draft) == (
        7,
        348912345678901248,
        snowflake_time(348912345678901248),
        1,
        2,
        3,
        4,
        8,
        0,
        1,
        "loop",
        "8",
        "loop.item",
        "noetl.loop.item",
        PRODUCER,
        "c",
        "k",
        "cat",
        "each",
        "python",
        "ok",
        "cmd",
        "s",
        "ab" * 32,
        "cd" * 32,
        "E",
        None,
        '{"a":"ü","b":1}',
        '{"n":1e+21}',
        '{"row":0}',
        '{"bytes":2,"encoding":"zstd","media_type":"application/json","rows":3,"sha256":"' + "ab" * 32 + '",'
        '"stored_sha256":"' + "ab" * 32 + '","uri":"noetl://tenant/acme/org/care/payloads/sha256/' + "ab" * 32 + '"}',
        '{"bytes":2,"media_type":"application/json","sha256":"' + "cd" * 32 + '","stored_sha256":"' + "cd" * 32 + '",'
        '"uri":"noetl://tenant/acme/org/care/payloads/sha256/' + "cd" * 32 + '"}',
    )


def test_what_is_absent_is_null() -> None:
    row = normalize(item(current_item=None))
    assert row[META:] == (None,) * 6
    assert row[DIGESTS] == (None, None)


def test_the_digest_of_an_append_is_pinned() -> None:
    # Keys are remembered across releases: another digest would turn every repetition into a reused key.
    assert digest(item(idempotency_key="k"), item(idempotency_key="l", error="E")).hex() == (
        "74e606cbb1ad1c249aa0b4ba5b6f1fb1976eb51669896092aced7d4e330efed4"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"event_id": 9},
        {"execution_id": 9},
        {"event_time": snowflake_time(1 << 40)},
        {"causation_id": 9},
        {"producer": "elsewhere"},
        {"correlation_id": "c9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_differs_between_two_tries_is_not_digested(change: dict[str, Any]) -> None:
    assert digest(msgspec.structs.replace(item(), **change)) == digest(item())


@pytest.mark.parametrize(
    "change",
    [
        {"parent_execution_id": 9},
        {"stage_id": 9},
        {"frame_id": 9},
        {"loop_id": 9},
        {"current_index": 9},
        {"schema_version": 9},
        {"aggregate_type": "x"},
        {"aggregate_id": "x"},
        {"event_type": "x"},
        {"schema_name": "x"},
        {"idempotency_key": "x"},
        {"catalog_id": "x"},
        {"node_name": "x"},
        {"node_type": "x"},
        {"status": "x"},
        {"command_id": "x"},
        {"shard_id": "x"},
        {"payload_ref": DRAFTS.payload()},
        {"fields_ref": DRAFTS.payload()},
        {"error": "x"},
        {"meta": {"x": 1}},
        {"context": {"x": 1}},
        {"result": {"x": 1}},
        {"current_item": "x"},
        {"stream_id": "x"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_else_is_digested(change: dict[str, Any]) -> None:
    assert digest(msgspec.structs.replace(item(), **change)) != digest(item())


def test_the_digest_depends_on_order_and_number() -> None:
    first, second = item(status="a"), item(status="b")
    assert len({digest(first, second), digest(second, first), digest(first), digest(first, first)}) == 4


def test_the_order_of_keys_in_a_value_does_not_matter() -> None:
    assert digest(item(context={"a": 1, "b": 2})) == digest(item(context={"b": 2, "a": 1}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, "\ud800", {1: 2}, b"bytes"], ids=repr)
def test_a_value_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(EventInvalid, match="JSON cannot carry exactly"):
        normalize(item(current_item=value))


@pytest.mark.parametrize("value", ["\x00", "a\\\x00", {"\x00": 1}, ["\\\\", "\\\x00"]], ids=ascii)
def test_a_nul_character_is_refused_wherever_it_stands(value: object) -> None:
    with pytest.raises(EventInvalid, match="NUL"):
        normalize(item(context={"deep": [value]}))


@pytest.mark.parametrize("value", ["\\u0000", "\\\\u0000", "u0000", "\u0001"], ids=ascii)
def test_text_that_only_looks_like_a_nul_character_is_kept(value: str) -> None:
    text = normalize(item(current_item=value))[ITEM]
    assert msgspec.json.decode(text) == value


@pytest.mark.parametrize("media_type", ["\x00", "\ud800"], ids=ascii)
def test_a_reference_is_held_to_the_same(media_type: str) -> None:
    with pytest.raises(EventInvalid):
        normalize(item(payload_ref=DRAFTS.payload(media_type=media_type)))


@pytest.mark.parametrize("letter", ["x", "ü", "€", "\U0001f9ea"])
def test_the_limit_counts_bytes_over_all_parts(letter: str) -> None:
    width = len(letter.encode())
    spare = INLINE_LIMIT - len('{"x":""}') * 3 - len('""')
    count, rest = divmod(spare, width)
    fitting = {
        "meta": {"x": letter * (count // 2)},
        "context": {"x": letter * (count - count // 2)},
        "result": {"x": "y" * rest},
    }
    row = normalize(item(**fitting, current_item=""))
    assert sum(len(part.encode()) for part in row[META : ITEM + 1]) == INLINE_LIMIT
    with pytest.raises(EventInvalid, match="more than 65536 bytes") as refused:
        normalize(item(**fitting, current_item="y"))
    assert refused.value.hint == "externalize large fields to the payload store first"


def test_a_leaf_is_the_sha256_of_all_columns_in_a_fixed_form() -> None:
    """INV-203."""
    draft = item(
        event_time=datetime(2026, 5, 16, 12, tzinfo=UTC),
        status='quo"te \\ ü\x1f',
        context={"b": 1.0, "a": "ü"},
    )
    text = leaf_text(draft.stream, draft.stream.shard, normalize(draft))
    assert msgspec.json.decode(text) == [
        "acme", "care", "execution/7/loop/8", draft.stream.shard, 7, 348912345678901248, "2026-05-16T12:00:00Z",
        *[None] * 4, 8, 0, 1, "loop", "8", "loop.item", "noetl.loop.item", PRODUCER, *[None] * 3, "each", None,
        'quo"te \\ ü\x1f', *[None] * 5, None, '{"a":"ü","b":1}', None, '{"row":0}', None, None,
    ]  # fmt: skip
    assert leaf_of(draft) == sha256(text).digest()
    assert leaves(draft.stream, draft.stream.shard, [normalize(draft)] * 2) == leaf_of(draft) * 2
    # A column that comes later and is null leaves the leaf as it was.
    assert leaf_text(draft.stream, draft.stream.shard, (*normalize(draft), None)) == text
    assert leaf_of(draft).hex() == PINNED


def test_every_column_but_those_of_the_ledger_moves_the_leaf() -> None:
    """INV-203."""
    draft = item()
    event = Event(
        **{name: getattr(draft, name) for name in Draft.__struct_fields__},
        stream_version=3,
        shard=draft.stream.shard,
        position=9,
        ingest_time=NOW,
    )
    assert leaf_of(event) == leaf_of(draft)
    moved = msgspec.structs.replace(event, stream_version=4, position=10, ingest_time=NOW + timedelta(days=1))
    assert leaf_of(moved) == leaf_of(draft)
    for name in Draft.__struct_fields__:
        value = getattr(draft, name)
        other: Any = DRAFTS.payload("ef" * 32) if name in REFERENCE_FIELDS else OTHER.get(type(value), "x")
        if name in ID_FIELDS | {"current_index"}:
            other = 77
        changed = msgspec.structs.replace(draft, **{name: other})
        assert leaf_of(changed) != leaf_of(draft), name
