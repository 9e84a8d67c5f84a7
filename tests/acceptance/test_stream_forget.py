"""`noetl stream forget`: readers that are gone for good leave the stream, those whose process lives do not. INV-131."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Begin, processes_in

from noetl.testing.servers.postgres import FreshDatabases

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def streamed(noetl: Noetl, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command with a stream that is there; leases are short, so that the dead are soon known as such."""
    mirror_events(monkeypatch, nats_url, stream_prefix)
    monkeypatch.setenv("NOETL_PROJECTIONS__LEASE_SECONDS", "2")
    code, _, errors = noetl("stream", "rebuild", "--yes")
    assert code == 0, errors
    return noetl


@pytest.fixture
def begin(streamed: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts projectors in processes of their own and waits until they have shards; none outlives the test."""
    with processes_in(tmp_path) as processes:
        yield partial(processes.begin_on_shards, "projecting as", "projector")


def readers(noetl: Noetl) -> list[str]:
    """Return who is listed as a reader."""
    code, shown, errors = noetl("stream", "status", "--json")
    assert code == 0, errors
    return [one["durable"] for one in json.loads(shown)["readers"]]


def listed(noetl: Noetl, *names: str) -> None:
    """Look until these are listed: a projector reads the stream a moment after it has its shards."""
    while not set(names) <= set(readers(noetl)):
        pass


def forgotten(noetl: Noetl, *names: str) -> list[dict[str, Any]]:
    """Ask again and again until the readers are forgotten: a process that was killed lives until its lease is over."""
    while (told := noetl("stream", "forget", *names, "--yes", "--json"))[0] != 0:
        assert "not forgotten" in told[2], told
    found: list[dict[str, Any]] = json.loads(told[1])
    return found


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_projector_that_is_gone_is_forgotten_and_one_that_lives_is_not(
    kill: bool, streamed: Noetl, begin: Begin
) -> None:
    own = "projector-noetl-projector-3"
    projector = begin(NOETL_SHARD_ID="3")
    listed(streamed, own)
    code, shown, errors = streamed("stream", "forget", own, "--yes")
    assert (code, shown) == (1, "")
    assert f"{own} is not forgotten: the projector noetl-projector-3 lives" in errors
    assert readers(streamed) == [own]

    if kill:
        projector.kill()
        projector.wait()
    else:
        projector.send_signal(signal.SIGTERM)
        assert projector.wait(30) == 0
    [gone] = forgotten(streamed, own)
    assert (gone["durable"], gone["shards"]) == (own, list(range(16)))
    assert readers(streamed) == []

    begin(NOETL_SHARD_ID="3")
    listed(streamed, own)


def test_a_projector_on_the_far_side_is_known_by_its_waiting_at_the_stream(
    streamed: Noetl, begin: Begin, fresh_databases: FreshDatabases
) -> None:
    far = begin(
        "--from-stream",
        NOETL_DATABASE_URL=fresh_databases.url(fresh_databases.take()),
        NOETL_RUNTIME__CLUSTER_ID="west",
        NOETL_SHARD_ID="west-0",
    )
    names = [f"far-west-{shard}" for shard in range(16)]
    listed(streamed, *names)
    code, _, errors = streamed("stream", "forget", *names, "--yes")
    assert code == 1
    assert "somebody waits for its messages now" in errors
    assert sorted(readers(streamed)) == sorted(names), "of several none is forgotten"

    far.send_signal(signal.SIGTERM)
    assert far.wait(30) == 0
    assert [one["durable"] for one in forgotten(streamed, *names)] == names
    assert readers(streamed) == []


def test_a_name_nobody_has_is_answered_with_those_there_are(
    streamed: Noetl, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, errors = streamed("stream", "forget", "projector-x", "--yes")
    assert code == 1
    assert "has no reader projector-x" in errors
    assert "it has no readers at all" in errors

    own = "projector-noetl-projector-4"
    process = begin(NOETL_SHARD_ID="4")
    listed(streamed, own)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    code, _, errors = streamed("stream", "forget", own, "projector-x", "--yes")
    assert code == 1
    assert f"its readers are {own}" in errors
    assert readers(streamed) == [own], "of several none is forgotten"

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, _, errors = streamed("stream", "forget", own)
    assert code == 1
    assert "nothing was done" in errors
    assert readers(streamed) == [own]
    assert "is forgotten; it was 0 messages behind" in streamed("stream", "forget", own, "--yes")[1]


def test_without_a_stream_nobody_is_asked_what_to_forget(
    noetl: Noetl, nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown, errors = noetl("stream", "forget", "projector-x")
    assert (code, shown) == (2, "")
    assert "event_store.distribution_backend is postgres: there are no durable readers to forget" in errors
    assert "set it to nats-jetstream, and event_store.connection.url to the server" in errors
    assert "Forget projector-x" not in errors
    mirror_events(monkeypatch, nats_url, stream_prefix)
    code, _, errors = noetl("stream", "forget", "projector-x", "--yes")
    assert (code, f"there is no stream {stream_prefix}_events" in errors) == (1, True)
    assert "`noetl relay` makes it" in errors
