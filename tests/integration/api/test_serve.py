"""Where a server listens, and how it stops."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from tests.integration.api.serving import TWO_STEPS, Server

from noetl.api.connections.listening import is_loopback
from noetl.api.serve import serve
from noetl.errors import ConfigError, Unavailable


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.com", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_only_loopback_addresses_count_as_such(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com"])
async def test_a_server_without_tokens_is_not_opened_to_others(server: Server, host: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        await serve(server.services, host, 0, auth_configured=False)
    assert refusal.value.hint is not None
    assert "token create" in refusal.value.hint


async def test_a_port_that_is_taken_is_told(server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(Unavailable, match=str(port)):
        await serve(server.services, "127.0.0.1", port, auth_configured=False)


async def test_a_server_that_stops_answers_what_waits_and_takes_no_more(server: Server) -> None:
    await server.register(TWO_STEPS)
    name = await server.start("tests/two")
    loop = asyncio.get_running_loop()
    port: asyncio.Future[int] = loop.create_future()
    served = asyncio.create_task(serve(server.services, "127.0.0.1", 0, auth_configured=False, ready=port.set_result))
    url = f"http://127.0.0.1:{await port}"
    began = loop.time()
    async with aiohttp.ClientSession() as session:
        waiting = asyncio.create_task(session.get(f"{url}/api/executions/{name}?wait=60"))
        while not server.services.engine.ended._waiting and not waiting.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        served.cancel()
        async with await waiting as answer:
            assert (await answer.json())["status"] == "RUNNING"
        with pytest.raises(asyncio.CancelledError):
            await served
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{url}/health")
    assert loop.time() - began < 20
