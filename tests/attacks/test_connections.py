"""Connections that take too much or too long, before anybody has shown a token."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tests.attacks.serving_limits as programme
from tests.attacks.serving_limits import LARGE, serving

from noetl.api.connections.limits import ConnectionLimits
from noetl.testing.attacks import connections as attacks
from noetl.testing.attacks.connections import AMBIGUOUS, HOST, answered, connected, half_a_body, unfinished

ASK = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
CHUNKED = f"POST /x HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
HASTY = ConnectionLimits(header_seconds=0.5, body_seconds=0.5, idle_seconds=0.5, send_seconds=1.0)


def told(answer: bytes) -> tuple[int, dict[str, Any]]:
    """Return the status of an answer and its problem document, after checking its form."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    status = int(lines[0].split(" ")[1])
    assert "content-type: application/problem+json" in lines, answer
    assert "connection: close" in lines
    assert f"content-length: {len(body)}" in lines
    problem = msgspec.json.decode(body)
    assert problem["status"] == status
    return status, problem


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_a_request_that_can_be_read_in_two_ways_is_refused(name: str) -> None:
    """INV-195."""
    async with serving(ConnectionLimits()) as served:
        status, problem = told(await answered(served.port, AMBIGUOUS[name]))
        assert (status, problem["code"]) == (400, "input_invalid")
        assert served.seen == []
        assert served.ended == {"request": 1}


async def test_headers_and_bodies_are_bounded_in_bytes_and_number() -> None:
    """INV-194."""
    limits = ConnectionLimits(header_bytes=2_000, header_count=10, body_bytes=1_000, pipelined=3)
    async with serving(limits) as served:
        host = f"Host: {HOST}\r\n".encode()
        many = b"X-A: b\r\n" * 9
        most = b"GET /x HTTP/1.1\r\nConnection: close\r\n" + many[8:] + host + b"\r\n"
        assert (await answered(served.port, most)).startswith(b"HTTP/1.1 200")
        too_many = b"GET /x HTTP/1.1\r\n" + host + many + b"X-C: d\r\n\r\n"
        assert told(await answered(served.port, too_many))[0] == 431
        long = b"GET /x HTTP/1.1\r\n" + host + b"X-A: " + b"x" * 5_000 + b"\r\n\r\n"
        assert told(await answered(served.port, long))[0] == 431
        assert told(await answered(served.port, b"GET /" + b"x" * 5_000))[0] == 431
        assert told(await answered(served.port, b"\r\n" * 2_000))[0] == 431

        # Refused by what it says, before a byte of it came.
        declared = b"POST /x HTTP/1.1\r\n" + host + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        assert told(await answered(served.port, declared))[0] == 413
        assert told(await answered(served.port, CHUNKED, b"3e9\r\n", b"x" * 1001))[1]["code"] == "too_large"
        assert told(await answered(served.port, CHUNKED, *[b"1;" + b"e" * 600 + b"\r\nx\r\n"] * 8))[0] == 413
        full = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"1\r\nx\r\n" * 1_000 + b"0\r\n\r\n"
        assert (await answered(served.port, full)).endswith(b"1000\n")
        assert [size for _, size, _ in served.seen] == [0, 1_000]

        flood = b"GET /wait HTTP/1.1\r\n" + host + b"\r\n"
        assert await answered(served.port, flood * 20) == b""
        await served.left.wait()
        assert served.ended == {"headers": 4, "body": 3, "pipelining": 1}


async def test_what_comes_after_a_body_is_no_header_of_the_request() -> None:
    """INV-195."""
    async with serving(ConnectionLimits()) as served:
        sent = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"1\r\nx\r\n0\r\n"
        assert b" 200 " in await answered(served.port, sent + b"Authorization: Bearer smuggled\r\nX-B: c\r\n\r\n")
        ((_, _, names),) = served.seen
        assert names == ["host", "transfer-encoding", "connection"]


async def test_an_upgrade_is_not_made_and_its_connection_ends_with_the_answer() -> None:
    """INV-195."""
    async with serving(ConnectionLimits()) as served:
        head = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()
        answer = await answered(served.port, head + b"GET /y HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1") == 1
        assert [path for path, _, _ in served.seen] == ["/x"]


async def test_a_target_with_the_host_of_the_request_is_taken() -> None:
    async with serving(ConnectionLimits()) as served:
        ask = f"GET http://{HOST}:{served.port}/x HTTP/1.1\r\nHost: {HOST}:{served.port}\r\nConnection: close\r\n\r\n"
        assert (await answered(served.port, ask.encode())).startswith(b"HTTP/1.1 200")


async def test_a_body_is_asked_for_where_the_client_waits_for_that() -> None:
    async with serving(ConnectionLimits()) as served, connected(served.port) as (reader, writer):
        writer.write(f"POST /x HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abcd")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_whatever_is_not_whole_in_time_ends() -> None:
    """INV-194."""
    async with serving(HASTY) as served:
        part = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\n".encode()
        async with (
            unfinished(served.port, 3, b"") as silent,
            unfinished(served.port, 3, part) as headers,
            unfinished(served.port, 1, b"\r\n") as empty,
            unfinished(served.port, 3, half_a_body("/x")) as bodies,
            unfinished(served.port, 1, CHUNKED + b"4\r\nab") as chunks,
            unfinished(served.port, 1, part + b"\r\n") as idle,
        ):
            assert [await one.read() for one in silent] == [b""] * 3
            for one in (*headers, *empty):
                assert told(await one.read())[1]["code"] == "too_slow"
            for one in (*bodies, *chunks):
                assert told(await one.read())[0] == 408
            assert (await idle[0].read()).endswith(b"\r\n\r\n0\n")
        assert served.ended == {"slow_headers": 7, "slow_body": 4}
        assert [size for _, size, _ in served.seen] == [0]
        await served.left.wait()


async def test_a_body_that_drips_is_not_waited_for_but_a_slow_one_is() -> None:
    """INV-194: time grows with what came, at the slowest rate that is taken."""
    head = f"POST /x HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: 4000\r\n\r\n".encode()

    async def dripped(port: int, size: int) -> bytes:
        async with connected(port) as (reader, writer):
            answer = asyncio.create_task(reader.read())
            writer.write(head)
            for _ in range(4_000 // size):
                writer.write(b"x" * size)
                if (await asyncio.wait((answer,), timeout=0.1))[0]:
                    break
            return await answer

    limits = ConnectionLimits(body_seconds=0.3, bytes_per_second=1_000)
    async with serving(limits) as served:
        drip, slow = await asyncio.gather(dripped(served.port, 1), dripped(served.port, 500))
        assert told(drip)[0] == 408
        assert slow.endswith(b"\r\n\r\n4000\n")


async def test_an_answer_that_nobody_reads_is_given_up_and_a_long_one_is_not() -> None:
    """INV-194."""
    async with serving(HASTY) as served:
        with socket.create_connection((HOST, served.port)) as deaf:
            deaf.sendall(f"GET /large HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            whole = f"GET /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
            assert len(await answered(served.port, whole)) > LARGE
            long = asyncio.create_task(answered(served.port, ASK.replace(b"/x", b"/stream")))
            await served.waiting.wait()
            await served.has_ended.wait()
            # It has been silent for longer than anything else may take.
            served.go_on.set()
            assert b"first\n" in await long
            assert b"last\n" in long.result()
        assert served.ended == {"unread": 1}


async def test_whoever_waits_for_an_answer_is_not_ended_by_half_a_request_behind_it() -> None:
    async with serving(HASTY) as served, connected(served.port) as (reader, writer):
        writer.write(f"GET /wait HTTP/1.1\r\nHost: {HOST}\r\n\r\nGET /y".encode())
        await served.waiting.wait()
        async with unfinished(served.port, 1, b"GET") as other:
            assert told(await other[0].read())[0] == 408
        served.go_on.set()
        answer = await reader.read()
        assert b"done\n" in answer
        assert told(answer.partition(b"done\n")[2])[0] == 408


async def test_whoever_leaves_is_noticed_also_with_requests_behind() -> None:
    async with serving(ConnectionLimits()) as served:
        async with connected(served.port) as (_, writer):
            ask = f"GET /wait HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
            writer.write(ask + ask)
            await served.waiting.wait()
        await served.left.wait()


async def test_connections_without_a_request_make_room_for_one_that_has() -> None:
    """INV-194."""
    limits = ConnectionLimits(connections=40, connections_per_address=20)
    async with serving(limits) as served, connected(served.port) as (kept_reader, kept):
        keep = ASK.replace(b"Connection: close\r\n", b"")
        kept.write(keep)
        await kept_reader.readuntil(b"0\n")
        async with unfinished(served.port, 100, half_a_body("/x")):
            assert (await answered(served.port, ASK)).startswith(b"HTTP/1.1 200")
            assert len(served.room) <= 20
            # One that was answered before is kept longer than those that never asked anything.
            kept.write(keep)
            assert (await kept_reader.readuntil(b"0\n")).startswith(b"HTTP/1.1 200")


async def test_where_all_connections_are_answered_another_is_refused() -> None:
    """INV-194."""
    async with serving(ConnectionLimits(connections=3)) as served:
        async with unfinished(served.port, 3, ASK.replace(b"/x", b"/wait")) as waiting:
            await served.waiting.wait()
            status, problem = told(await answered(served.port))
            assert (status, problem["code"]) == (503, "too_many")
            served.go_on.set()
            for one in waiting:
                assert (await one.read()).endswith(b"done\n")
        assert (await answered(served.port, ASK)).startswith(b"HTTP/1.1 200")
        assert served.ended == {"crowded": 1}


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of its own, and its port."""
    named = [sys.executable, str(programme.__file__)]
    with subprocess.Popen(named, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            yield started, int(started.stdout.readline())
        finally:
            started.kill()


def memory(process: subprocess.Popen[str]) -> int:
    """Return the most memory that a process ever had, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


FLOODS: tuple[Callable[[int, int], int], ...] = (
    attacks.endless_headers,
    attacks.endless_lines,
    attacks.endless_extension,
    attacks.endless_trailers,
    attacks.endless_requests,
)


async def test_no_flood_takes_memory_or_keeps_others_waiting(process: tuple[subprocess.Popen[str], int]) -> None:
    """INV-194: 400 MB of each, and 2,000 connections that never ask anything."""
    server, port = process
    await answered(port, ASK)
    before = memory(server)
    taken = {}
    for flood in FLOODS:
        taken[flood.__name__] = await asyncio.to_thread(flood, port, 400_000_000)
        assert (await answered(port, ASK)).startswith(b"HTTP/1.1 200")
    assert max(taken.values()) < 20_000_000, taken
    async with unfinished(port, 2_000, f"GET / HTTP/1.1\r\nHost: {HOST}\r\n".encode()):
        assert (await asyncio.wait_for(answered(port, ASK), 5)).startswith(b"HTTP/1.1 200")
    assert memory(server) - before < 20_000_000


async def test_a_connection_whose_answer_came_before_its_body_is_not_kept_for_ever() -> None:
    """INV-194."""
    async with serving(HASTY) as served, connected(served.port) as (reader, writer):
        served.go_on.set()
        writer.write(f"GET /stream HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 4\r\n\r\n".encode())
        await reader.readuntil(b"last\n")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"abcd")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        assert served.ended == {}, "it was not refused: nothing was asked"
