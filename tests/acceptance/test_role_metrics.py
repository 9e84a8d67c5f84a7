"""The endpoint of roles without an API: what each tells, to whom, and that it ends with its role."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.acceptance.hello_loop import hello_loop
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import processes_in

from noetl.model.stream import SHARD_COUNT
from noetl.runtime.config import load_settings
from noetl.runtime.metrics.roles import open_projector_metrics
from noetl.runtime.streams.opening import open_stream
from noetl.runtime.streams.relay import rebuild
from noetl.runtime.wiring import open_runtime
from noetl.testing.samples.drafts import Drafts
from noetl.testing.samples.runs import framed_run

Noetl = Callable[..., tuple[int, str, str]]
Begin = Callable[..., "Role"]

pytestmark = pytest.mark.service

PATIENCE = 30
HELLO = hello_loop(3, '{kind: shell, command: "echo {{ iter.item }}"}')


def shown(url: str) -> dict[str, float]:
    """Return every series of an endpoint by name and labels."""
    with urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Role:
    """A role in a process of its own, and what its endpoint tells."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        line = self.line("metrics on ")
        self.url = line.removeprefix("metrics on ").removesuffix("/metrics")

    def line(self, beginning: str) -> str:
        """Wait for a line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.rstrip("\n")
        raise AssertionError(self._log.read_text())

    def figures(self) -> dict[str, float]:
        """Return every series by name and labels."""
        return shown(self.url)

    def until(self, **wanted: float) -> dict[str, float]:
        """Ask until the series have these values; the endpoint reads once a second at most."""
        began = time.monotonic()
        while (found := self.figures()) | wanted != found:
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() - began < PATIENCE, {name: found.get(name) for name in wanted}
        return found

    def ended(self) -> None:
        """Tell it to stop, and see that nobody listens any more."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self._log.read_text()
        with pytest.raises(URLError):
            urlopen(f"{self.url}/health", timeout=PATIENCE)


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts roles with an endpoint; none outlives the test."""
    (tmp_path / "hello.yaml").write_text(HELLO)
    with processes_in(tmp_path) as processes:

        def begun(*arguments: str) -> Role:
            process = processes.begin(*arguments, NOETL_METRICS_PORT="0")
            return Role(process, processes.log_of(process))

        yield begun


@pytest.fixture
def streamed(nats_url: str, stream_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets events be mirrored to a stream of the test's own."""
    mirror_events(monkeypatch, nats_url, stream_prefix)


def until_behind(noetl: Noetl, durable: str, messages: int) -> None:
    """Wait until the one reader of the stream, which reads all shards, is so far behind."""
    wanted = {"durable": durable, "shards": list(range(SHARD_COUNT)), "lag_messages": messages}
    began = time.monotonic()
    while (found := json.loads(noetl("stream", "status", "--json")[1])["readers"]) != [wanted]:
        assert time.monotonic() - began < PATIENCE, found


def each_shard(name: str) -> set[str]:
    return {f"{name}{{shard={shard}}}" for shard in range(SHARD_COUNT)}


def test_a_relay_tells_what_it_published_and_how_far_it_is(noetl: Noetl, streamed: None, begin: Begin) -> None:
    relay = begin("relay")
    events = asyncio.run(append_some())
    found = relay.until(**{"relay_published_total": events, "noetl_shards_held{role=relay}": SHARD_COUNT})
    assert each_shard("relay_lag_events") <= found.keys()
    relay.until(**dict.fromkeys(each_shard("relay_lag_events"), 0))
    assert found["relay_publish_ack_seconds_count"] >= 1
    assert found["relay_rebuilds_total"] == found["relay_decided_published_total"] == 0
    with urlopen(f"{relay.url}/health", timeout=PATIENCE) as answer:
        assert json.load(answer) | {"version": ""} == {"status": "ok", "role": "relay", "version": ""}
    relay.ended()


def test_a_projector_tells_its_shards_its_events_and_how_far_its_reader_is(
    noetl: Noetl, streamed: None, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_PROJECTIONS__IN_SERVER", "false")
    monkeypatch.setenv("NOETL_SHARD_ID", "noetl-projector-7")
    relay, projector = begin("relay"), begin("projector")
    projector.until(**{"noetl_shards_held{role=projector}": SHARD_COUNT})
    assert projector.figures()["projector_projected_total"] == 0
    events = asyncio.run(append_some())
    zero = (
        each_shard("projection_lag_events")
        | each_shard("projection_lag_seconds")
        | each_shard("stream_reader_lag_messages")
    )
    relay.until(**dict.fromkeys(each_shard("relay_lag_events"), 0))
    found = projector.until(projector_projected_total=events, **dict.fromkeys(zero, 0))
    assert 1 <= found["projector_batches_total"] <= events

    until_behind(noetl, "projector-noetl-projector-7", 0)
    # A reader that hears nothing more, as it is stopped, is the more behind the more is published.
    projector.process.send_signal(signal.SIGSTOP)
    more = asyncio.run(append_some())
    until_behind(noetl, "projector-noetl-projector-7", more)
    line = next(line for line in noetl("stream", "status")[1].splitlines() if line.startswith("projector-"))
    assert line.split() == ["projector-noetl-projector-7", str(SHARD_COUNT), str(more)]
    projector.process.send_signal(signal.SIGCONT)
    projector.until(projector_projected_total=events + more, **dict.fromkeys(zero, 0))
    projector.ended()


def test_a_reader_is_behind_in_the_shards_that_are_held_and_in_no_others(
    noetl: Noetl, streamed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_METRICS_PORT", "0")
    monkeypatch.setenv("NOETL_SHARD_ID", "3")

    async def looked_at() -> tuple[list[int], dict[int, float | None]]:
        for _ in range(8):
            await append_some()
        async with open_runtime(load_settings()) as runtime:
            await rebuild(runtime)
            async with (
                open_stream(runtime.settings, runtime.database, "events") as stream,
                open_projector_metrics(runtime, lambda _: None, from_stream=False) as (metrics, _),
            ):
                await stream.subscribe("projector-noetl-projector-3")
                heads = list((await runtime.ledger.head()).positions)
                grown = [shard for shard, head in enumerate(heads) if head]
                metrics.hold(grown[:1])
                await metrics.exposition()
                gauges = {
                    shard: metrics.registry.get_sample_value("stream_reader_lag_messages", {"shard": str(shard)})
                    for shard in grown
                }
                return [heads[shard] for shard in grown], gauges

    heads, gauges = asyncio.run(looked_at())
    assert len(heads) > 1
    assert list(gauges.values()) == [heads[0]] + [0] * (len(heads) - 1)


async def append_some() -> int:
    """Append a run to the ledger and return how many events that was."""
    async with open_runtime(load_settings()) as runtime:
        before = sum((await runtime.ledger.head()).positions)
        await framed_run(runtime.ledger, Drafts(runtime.scope, runtime.ids.mint))
        return sum((await runtime.ledger.head()).positions) - before


def test_a_materializer_tells_what_it_wrote_and_what_waits(
    noetl: Noetl, streamed: None, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", "stream")
    materializer = begin("materializer")
    found = materializer.until(**{"noetl_shards_held{role=materializer}": SHARD_COUNT})
    assert found["materializer_written_total"] == 0
    relay = begin("relay")
    noetl("run", "hello.yaml")
    found = materializer.until(materializer_lag_events=0, **dict.fromkeys(each_shard("stream_reader_lag_messages"), 0))
    assert found["materializer_lag_seconds"] == 0
    assert found["materializer_written_total"] > 0
    assert "shadow_compared_events{result=different}" in found
    materializer.ended()
    relay.ended()


def test_a_shadow_tells_what_it_compared(
    noetl: Noetl, streamed: None, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_EVENT_STORE__WRITE_PATH", "shadow")
    shadow, relay = begin("materializer"), begin("relay")
    events = asyncio.run(append_some())
    found = shadow.until(**{"shadow_compared_events{result=equal}": events})
    assert found["shadow_compared_events{result=missing}"] == found["shadow_compared_events{result=different}"] == 0
    relay.ended()
    shadow.ended()


def test_workers_and_schedulers_tell_of_themselves(noetl: Noetl, begin: Begin) -> None:
    worker = begin("worker", "--slots", "3")
    found = worker.until(worker_slots=3, worker_slots_busy=0)
    assert found["worker_commands_total"] == found["noetl_commands_claimed_total"] == 0
    scheduler = begin("scheduler")
    assert scheduler.figures()["scheduler_claim_total{kind=playbook}{result=won}"] == 0
    scheduler.ended()
    worker.ended()


def test_a_worker_for_a_server_tells_what_it_did(noetl: Noetl, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SERVER__PORT", "0")
    with subprocess.Popen([sys.executable, "-m", "noetl", "server"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = next(line for line in server.stdout if line.startswith("listening on ")).split()[-1]
        worker = begin("worker", "--server", url, "--slots", "2")
        assert noetl("catalog", "register", "hello.yaml")[0] == 0
        body = json.dumps({"path": "demo/hello"}).encode()
        asked = Request(f"{url}/api/execute", body, {"Content-Type": "application/json"})
        with urlopen(asked, timeout=PATIENCE) as answer:
            execution_id = json.load(answer)["execution_id"]
        with urlopen(f"{url}/api/executions/{execution_id}?wait=30", timeout=PATIENCE) as answer:
            assert json.load(answer)["status"] == "COMPLETED"
        found = worker.until(worker_slots=2, worker_slots_busy=0)
        assert found["worker_commands_total"] >= 1
        assert found["noetl_payload_bytes_total{direction=written}{tier=object}"] > 0
        worker.ended()
        began = time.monotonic()
        while shown(url)["projector_projected_total"] == 0:
            assert time.monotonic() - began < PATIENCE, "a server that projects itself counts what it projects"
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0


def test_a_port_that_is_taken_is_one_line(noetl: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        monkeypatch.setenv("NOETL_METRICS_PORT", port)
        code, _, errors = noetl("projector")
    assert code == 3
    assert f"cannot listen on 127.0.0.1:{port}" in errors
    assert "Traceback" not in errors


def test_others_are_shown_metrics_only_where_that_is_meant(noetl: Noetl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_METRICS_PORT", "0")
    monkeypatch.setenv("NOETL_METRICS_HOST", "0.0.0.0")
    code, _, errors = noetl("projector")
    assert code == 2
    assert "refusing to show metrics on 0.0.0.0" in errors
    assert "metrics_open" in errors
