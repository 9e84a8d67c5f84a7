"""`noetl relay` and `noetl stream` as a user runs them, with a real NATS server."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Begin, processes_in

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def relayed(noetl: Noetl, nats_url: str, stream_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command, with a playbook that was run before the settings named a NATS server."""
    (tmp_path / "hello.yaml").write_text(hello_loop(3))
    assert noetl("run", "hello.yaml")[0] == 0
    mirror_events(monkeypatch, nats_url, stream_prefix)
    return noetl


@pytest.fixture
def begin(relayed: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts relays in processes of their own and waits until they have shards; none outlives the test."""
    with processes_in(tmp_path) as processes:
        yield partial(processes.begin_on_shards, "relaying as", "relay")


def status(noetl: Noetl) -> dict[str, Any]:
    """Return what the command shows as JSON."""
    code, shown, errors = noetl("stream", "status", "--json")
    assert code == 0, errors
    found = json.loads(shown)
    assert isinstance(found, dict)
    return found


def test_a_relay_fills_the_stream_and_says_so(relayed: Noetl, begin: Begin, stream_prefix: str) -> None:
    before = status(relayed)
    assert before["state"] is None
    assert before["lag_events"] == sum(one["head"] for one in before["shards"]) > 0
    assert f"{stream_prefix}_events is not there yet" in relayed("stream", "status")[1]

    process = begin()
    while (now := status(relayed))["lag_events"]:
        pass
    assert now["state"]["messages"] == before["lag_events"]
    assert {one["holder"] for one in now["shards"]} == {f"{os.uname().nodename}/{process.pid}"}
    table = relayed("stream", "status")[1]
    assert f"holds {before['lag_events']:,} messages" in table
    assert str(process.pid) in table

    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    after = status(relayed)
    assert {one["holder"] for one in after["shards"]} == {None}
    assert "no relay runs" in relayed("stream", "status")[1]


@pytest.mark.parametrize("with_relay", [False, True], ids=["by itself", "beside a relay"])
def test_a_stream_is_made_anew_on_command(with_relay: bool, relayed: Noetl, begin: Begin) -> None:
    if with_relay:
        begin()
    code, shown, errors = relayed("stream", "rebuild", "--yes", "--json")
    assert code == 0, errors
    events = sum(one["head"] for one in status(relayed)["shards"])
    assert json.loads(shown)["messages"] == events > 0
    first = status(relayed)["state"]["created"]
    code, shown, errors = relayed("stream", "rebuild", "--yes")
    assert code == 0, errors
    assert f"holds {events:,} events again" in shown
    now = status(relayed)
    assert now["state"]["created"] != first
    assert (now["state"]["messages"], now["lag_events"]) == (events, 0)


def test_a_stream_is_not_wiped_without_being_asked(relayed: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    relayed("stream", "rebuild", "--yes")
    before = status(relayed)["state"]["created"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, _, errors = relayed("stream", "rebuild")
    assert code != 0
    assert "nothing was done" in errors
    assert status(relayed)["state"]["created"] == before


def test_without_a_stream_to_fill_a_relay_does_not_start(noetl: Noetl) -> None:
    for command in (["relay"], ["stream", "rebuild", "--yes"]):
        code, _, errors = noetl(*command)
        assert code == 2
        assert "needs no relay" in errors
        assert "nats-jetstream" in errors
    code, shown, errors = noetl("stream", "status")
    assert code == 0, errors
    assert "is the ledger itself" in shown


def test_without_a_server_the_stream_cannot_be_shown(relayed: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", "nats://127.0.0.1:9")
    code, _, errors = relayed("stream", "status")
    assert code == 3
    assert "127.0.0.1:9" in errors
