"""Scopes and streams: names that are sound, and the shard everything of an execution shares."""

from __future__ import annotations

import pytest

from noetl.model.stream import Scope, Stream, execution_stream, frame_stream, loop_stream, shard_of, stage_stream

SCOPE = Scope("acme", "care-network")


def test_all_streams_of_an_execution_live_in_its_shard() -> None:
    streams = [
        execution_stream(SCOPE, 987654321),
        stage_stream(SCOPE, 987654321, 5),
        frame_stream(SCOPE, 987654321, 6),
        loop_stream(SCOPE, 987654321, 7),
        SCOPE.stream("execution/987654321/anything/else"),
    ]
    assert {stream.shard for stream in streams} == {shard_of("acme", "care-network", "987654321")} == {7}
    assert {stream.execution_id for stream in streams} == {987654321}
    assert [stream.stream_id for stream in streams[:4]] == [
        "execution/987654321",
        "execution/987654321/stage/5",
        "execution/987654321/frame/6",
        "execution/987654321/loop/7",
    ]


@pytest.mark.parametrize(
    "stream_id",
    [
        "dataset/patients",
        "execution",
        "execution/",
        "execution/x",
        "execution/0",
        "execution/07",
        "executions/7",
        "x/execution/7",
    ],
)
def test_a_stream_outside_executions_lives_in_the_shard_of_its_name(stream_id: str) -> None:
    stream = SCOPE.stream(stream_id)
    assert stream.execution_id is None
    assert stream.shard == shard_of("acme", "care-network", stream_id)


def test_a_stream_knows_its_scope() -> None:
    assert Stream("acme", "care-network", "x").scope == SCOPE


@pytest.mark.parametrize("name", ["acme", "a", "A.b_c-9", "9", "x" * 128])
def test_a_sound_name_has_no_problems(name: str) -> None:
    assert Scope(name, name).problems() == []


@pytest.mark.parametrize("name", ["", ".a", "-a", "a b", "a/b", "ä", "x" * 129, "a\n", "a\x00", "%"])
def test_an_unsound_name_is_named_with_its_field(name: str) -> None:
    assert ["organization_id" in problem for problem in Scope("acme", name).problems()] == [True]
    assert ["tenant_id" in problem for problem in Scope(name, "care").problems()] == [True]
    assert len(Scope(name, name).problems()) == 2


@pytest.mark.parametrize("stream_id", ["dataset/x", "a:b@c+d-e_f.g/h", "x" * 512])
def test_a_sound_stream_has_no_problems(stream_id: str) -> None:
    assert SCOPE.stream(stream_id).problems() == []


@pytest.mark.parametrize("stream_id", ["", "/x", "x y", "x\ny", "ü", "x" * 513, "x\x00", "execution/1\n"])
def test_an_unsound_stream_is_named(stream_id: str) -> None:
    (problem,) = SCOPE.stream(stream_id).problems()
    assert problem.startswith(f"stream_id {stream_id!r}")
