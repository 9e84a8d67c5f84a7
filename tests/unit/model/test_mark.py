"""Marks: how far every shard had come, as one checked token."""

from __future__ import annotations

import string
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from blake3 import blake3
from hypothesis import assume, given
from hypothesis import strategies as st

from noetl.errors import InputError
from noetl.model.mark import MAX_POSITION, MAX_SHARDS, Mark

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
SAMPLE = Mark([0, 1, 127, 128, 300, 16_384, 2_000_000, 7, 0, 5, 99, 12_345, 8, 1_000_000_007, 3, 42])

positions = st.lists(st.integers(0, MAX_POSITION), min_size=1, max_size=20)
marks = st.lists(st.integers(0, 1000), min_size=16, max_size=16).map(Mark)


def token_of(body: bytes) -> str:
    """Sign any bytes as if they were a mark."""
    check = blake3(b"m1." + body).digest(length=2)
    return "m1." + urlsafe_b64encode(body + check).rstrip(b"=").decode()


def test_the_token_of_a_mark_never_changes() -> None:
    assert SAMPLE.token() == "m1.AAF_gAGsAoCAAYCJegcABWO5YAiHlOvcAwMqhlc"
    assert Mark.zero().token() == "m1.AAAAAAAAAAAAAAAAAAAAAB6I"


def test_a_mark_prints_as_its_token() -> None:
    assert str(SAMPLE) == SAMPLE.token()


@given(positions)
def test_a_token_is_read_back_as_its_mark(numbers: list[int]) -> None:
    assert Mark.parse(Mark(numbers).token()) == Mark(numbers)


def test_the_zero_mark_has_sixteen_shards_at_the_beginning() -> None:
    assert Mark.zero().positions == (0,) * 16


def test_setting_a_position_leaves_the_other_shards_and_the_old_mark_alone() -> None:
    moved = SAMPLE.with_position(3, 129)
    assert moved.positions[3] == 129
    assert (moved.positions[:3], moved.positions[4:]) == (SAMPLE.positions[:3], SAMPLE.positions[4:])
    assert SAMPLE.positions[3] == 128


@pytest.mark.parametrize("shard", [-1, 16])
def test_a_shard_that_does_not_exist_cannot_be_set(shard: int) -> None:
    with pytest.raises(InputError, match=f"no shard {shard}; this mark has shards 0 to 15"):
        SAMPLE.with_position(shard, 1)


@pytest.mark.parametrize("position", [-1, MAX_POSITION + 1])
def test_a_position_out_of_range_is_refused(position: int) -> None:
    with pytest.raises(InputError, match=f"position {position} of shard 2"):
        Mark([0, 0, position])


@pytest.mark.parametrize("count", [0, MAX_SHARDS + 1])
def test_a_mark_without_shards_or_with_too_many_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"not {count}"):
        Mark.zero(count)


def test_the_largest_mark_is_read_back() -> None:
    mark = Mark([MAX_POSITION] * MAX_SHARDS)
    assert Mark.parse(mark.token()) == mark


def test_a_mark_covers_itself_and_what_is_behind_in_every_shard() -> None:
    assert SAMPLE.covers(SAMPLE)
    assert SAMPLE.covers(Mark.zero())


def test_a_mark_behind_in_one_shard_does_not_cover() -> None:
    assert not SAMPLE.with_position(15, 41).covers(SAMPLE)


@given(marks, marks)
def test_a_merge_is_the_earliest_mark_that_covers_both(one: Mark, other: Mark) -> None:
    merged = one.merge(other)
    assert merged.covers(one)
    assert merged.covers(other)
    assert all(
        position in pair for position, *pair in zip(merged.positions, one.positions, other.positions, strict=True)
    )


@pytest.mark.parametrize("operation", [Mark.covers, Mark.merge])
def test_marks_of_different_shard_counts_are_not_compared(operation: object) -> None:
    with pytest.raises(InputError, match="marks of 16 and 8 shards"):
        operation(SAMPLE, Mark.zero(8))  # type: ignore[operator]


def test_every_single_mistyped_character_of_a_token_is_detected() -> None:
    token = SAMPLE.token()
    for at in range(len(token)):
        for character in set(ALPHABET + " .") - {token[at]}:
            with pytest.raises(InputError):
                Mark.parse(token[:at] + character + token[at + 1 :])


def test_every_cut_off_token_is_detected() -> None:
    token = SAMPLE.token()
    for length in range(len(token)):
        with pytest.raises(InputError):
            Mark.parse(token[:length])


@given(positions, st.data())
def test_a_changed_token_never_reads_as_the_same_mark(numbers: list[int], data: st.DataObject) -> None:
    token = Mark(numbers).token()
    at = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.sampled_from(ALPHABET))
    assume(character != token[at])
    try:
        read = Mark.parse(token[:at] + character + token[at + 1 :])
    except InputError:
        return
    assert read != Mark(numbers)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "a mark starts with 'm1.'"),
        ("2026-01-01", "a mark starts with 'm1.'"),
        ("m1.", "characters are missing or do not belong"),
        ("m1.ab cd", "characters are missing or do not belong"),
        ("m1.abcde", "characters are missing or do not belong"),
        ("m1.abé", "characters are missing or do not belong"),
        ("m1." + "A" * 16_385, r"^'m1\.A{114}\.\.\.' is not a mark: characters are missing"),
        ("m1.AAAA", "its check does not match"),
        (token_of(b""), "its check does not match"),
        (token_of(b"\x01\x80"), "its check does not match"),
        (token_of(b"\x81\x00"), "not written the one way"),
        (token_of(b"\xff" * 9 + b"\x01"), "is not between 0 and 2"),
    ],
)
def test_a_token_that_is_no_mark_says_why(token: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Mark.parse(token)


def test_bits_left_over_at_the_end_of_a_token_must_be_zero() -> None:
    token = Mark([1, 2]).token()
    twin = token[:-1] + ALPHABET[ALPHABET.index(token[-1]) + 1]
    assert urlsafe_b64decode(twin[3:] + "==") == urlsafe_b64decode(token[3:] + "==")
    with pytest.raises(InputError, match="not written the one way"):
        Mark.parse(twin)
