"""The bucket of hints, wiped and deleted in the middle of a run on real servers: nothing is lost, and hints come back. INV-130."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from nats.js.client import JetStreamContext
from nats.js.errors import NotFoundError
from tests.acceptance.mirroring import mirror_events
from tests.acceptance.processes import Begin, line, processes_in

from noetl.kernel.stream.nats.connection import NatsConnection
from noetl.runtime.config import load_settings
from noetl.runtime.projections.projector import open_projector
from noetl.runtime.wiring import open_runtime

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

ROWS, FRAME_ROWS, WORKERS, SLOTS = 200, 25, 2, 2
DONE_AT_THE_GATE = 10
PATIENCE_SECONDS = 30.0
PLAYBOOK = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: gated, path: demo/gated}}
workload: {{pg: {{}}}}
workflow:
  - step: each
    loop:
      in: "{{{{ range({ROWS}) | list }}}}"
      iterator: n
      spec: {{mode: parallel, max_in_flight: {WORKERS * SLOTS}, frame: {{max_rows: {FRAME_ROWS}}}}}
    tool:
      - name: effect
        kind: postgres
        auth: "{{{{ workload.pg }}}}"
        command: INSERT INTO public.effect (n) VALUES ($1) ON CONFLICT (n) DO UPDATE SET runs = effect.runs + 1
        params: ["{{{{ iter.n }}}}"]
      - name: gate
        kind: postgres
        auth: "{{{{ workload.pg }}}}"
        command: SELECT CASE WHEN $1::integer % {FRAME_ROWS} = {DONE_AT_THE_GATE} THEN pg_advisory_xact_lock_shared(4711)::text END
        params: ["{{{{ iter.n }}}}"]
"""


@pytest.fixture
def hinted(noetl: Noetl, nats_url: str, stream_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command where events are mirrored to NATS."""
    (tmp_path / "gated.yaml").write_text(PLAYBOOK)
    mirror_events(monkeypatch, nats_url, stream_prefix)
    return noetl


@pytest.fixture
def begin(hinted: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts roles in processes of their own; all of them end whole at the test's end."""
    with processes_in(tmp_path) as processes:
        yield processes.begin
        # Workers first: one that has something to report waits for its server.
        for process in reversed(processes.started):
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def call(url: str, body: Any = None) -> Any:
    """Call a route and return its JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def each(noetl: Noetl, execution_id: str) -> dict[str, Any]:
    """Return what is shown of the loop."""
    code, shown, errors = noetl("executions", "show", execution_id, "--json")
    assert code == 0, errors
    step: dict[str, Any] = json.loads(shown)["steps"][0]
    return step


def open_stage(url: str, execution_id: str) -> str:
    """Wait for the loop's stage and return where it is shown."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for event in call(f"{url}/api/executions/{execution_id}/events?type=stage.opened")["events"]:
            return f"{url}/api/stages/{event['stage_id']}"
    raise AssertionError("the loop did not begin")


def in_hand(stage: str) -> dict[str, Any]:
    """Look until all frames in hand are known to stand at the gate, and return what is shown then."""
    wanted, until = WORKERS * SLOTS * DONE_AT_THE_GATE, time.monotonic() + PATIENCE_SECONDS
    while ((shown := call(stage))["so_far"] or {}).get("rows_done") != wanted:
        assert shown["status"] == "OPEN"
        assert time.monotonic() < until, shown
    found: dict[str, Any] = shown
    return found


def at_nats(nats_url: str, act: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
    """Do something at the server."""

    async def acting() -> Any:
        connection = NatsConnection(nats_url)
        try:
            return await act(await connection.jetstream())
        finally:
            await connection.close()

    return asyncio.run(acting())


def test_hints_that_are_wiped_and_deleted_while_loops_run_change_nothing_and_come_back(
    hinted: Noetl, begin: Begin, owner_url: str, nats_url: str, stream_prefix: str
) -> None:
    bucket = f"{stream_prefix}_hints"
    with psycopg.connect(owner_url, autocommit=True) as database:
        database.execute("CREATE TABLE public.effect (n integer PRIMARY KEY, runs integer NOT NULL DEFAULT 1)")
        database.execute("SELECT pg_advisory_lock(4711)")
        server, beside = begin("server", "--port", "0"), begin("worker", "--slots", str(SLOTS))
        url = line(server).removeprefix("listening on ")
        away = begin("worker", "--slots", str(SLOTS), "--server", url)
        assert all("working with" in line(worker) for worker in (beside, away))
        assert hinted("catalog", "register", "gated.yaml")[0] == 0
        payload = {"pg": {"dsn": owner_url}}
        execution_id = call(f"{url}/api/execute", {"path": "demo/gated", "payload": payload})["execution_id"]

        # Rows that nobody has committed are known all the same, and count nowhere else.
        stage = open_stage(url, execution_id)
        shown = in_hand(stage)
        assert (shown["rows_done"], shown["rows_failed"], shown["total_rows"]) == (0, 0, ROWS)
        assert f"0 of {ROWS} (40 so far, " in hinted("executions", "show", execution_id)[1]

        at_nats(nats_url, lambda jetstream: jetstream.purge_stream(f"KV_{bucket}"))
        in_hand(stage)
        at_nats(nats_url, lambda jetstream: jetstream.delete_key_value(bucket))
        in_hand(stage)
        database.execute("SELECT pg_advisory_unlock(4711)")

        at_nats(nats_url, lambda jetstream: jetstream.delete_key_value(bucket))
        hinted("events", execution_id, "--follow")
        step = each(hinted, execution_id)
        assert (step["status"], step["done"], step["failed"], step["so_far"]) == ("completed", ROWS, 0, None)
        effects = database.execute("SELECT count(*), sum(runs) FROM public.effect").fetchone()
        assert effects == (ROWS, ROWS)
        code, told, errors = hinted("verify", "--all")
        assert code == 0, told + errors

        # What is told next makes the bucket anew.
        call(f"{url}/api/execute", {"path": "demo/gated", "payload": payload})
        at_nats(nats_url, lambda jetstream: there(jetstream, bucket))


async def there(jetstream: JetStreamContext, bucket: str) -> None:
    """Wait until the bucket is there: whoever writes a note makes it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(NotFoundError):
                await jetstream.key_value(bucket)
                return


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
@pytest.mark.usefixtures("hinted")
async def test_projectors_share_shards_at_once_though_they_look_seldom(
    deleted: bool, nats_connection: NatsConnection, stream_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves they would look every two minutes."""
    monkeypatch.setenv("NOETL_PROJECTIONS__LEASE_SECONDS", "600")
    held: dict[str, frozenset[int]] = {}
    moved = asyncio.Event()

    async def settle(*shares: int) -> None:
        async with asyncio.timeout(60):
            while sorted(map(len, held.values())) != sorted(shares):
                moved.clear()
                await moved.wait()

    async def join(stack: AsyncExitStack, name: str) -> None:
        def told(_store: str, shards: frozenset[int]) -> None:
            held[name] = shards
            moved.set()

        monkeypatch.setenv("NOETL_SHARD_ID", name)
        runtime = await stack.enter_async_context(open_runtime(load_settings()))
        await stack.enter_async_context(open_projector(runtime, told))

    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await join(first, "one")
        await settle(16)
        if deleted:
            bucket, jetstream = f"{stream_prefix}_hints", await nats_connection.jetstream()
            await there(jetstream, bucket)
            await jetstream.delete_key_value(bucket)
        await join(second, "two")
        await settle(8, 8)
        await second.aclose()
        await settle(0, 16)
