"""Sources of a server as a process: webhooks over HTTP, a source that is kept running, and what is seen of both."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from noetl.pipelines.sources.signatures import signature_of

Noetl = Callable[..., tuple[int, str, str]]
Begin = Callable[..., "subprocess.Popen[str]"]

pytestmark = [pytest.mark.service, pytest.mark.timeout(240)]

SECRET = "whsec-0123456789"
DAG = """\
name: shop
publish: [orders, totals, ticks]
jobs:
  - name: orders
    source: {kind: webhook, webhook_path: /orders, secret: shop-hook}
    unique_key: [id]
    schema: {columns: {id: bigint not null, amount: double}}
  - name: totals
    inputs: [orders]
    udf: {entrypoint: totals.py}
    idle_timeout: never
  - name: ticks
    source: {kind: always_on, every: 200ms}
    udf: {entrypoint: ticks.py}
    unique_key: [tick]
    heartbeat_timeout_seconds: 3
  - name: by_hand
    udf: {entrypoint: ticks.py}
"""
TOTALS = """\
import pyarrow as pa, pyarrow.compute as pc

def run(orders):
    return pa.table({"orders": [orders.num_rows], "amount": [pc.sum(orders.column("amount")).as_py() or 0.0]})
"""
TICKS = """\
import pyarrow as pa

def run(state):
    state["next"] = state.get("next", 1) + 1
    return pa.table({"tick": [state["next"] - 1]})
"""


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path, spark_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts roles in processes of their own; none outlives the test."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NOETL_SPARK__CACHE_DIRECTORY", str(spark_cache))
    monkeypatch.setenv("NOETL_SECRET_KEY", b64encode(bytes(range(32))).decode())
    monkeypatch.setenv("NOETL_SOURCES__HOOK_MAX_BYTES", "200")
    for name, text in (("dag.yaml", DAG), ("totals.py", TOTALS), ("ticks.py", TICKS)):
        (tmp_path / name).write_text(text)
    (tmp_path / "hook.json").write_text(json.dumps({"name": "shop-hook", "type": "api_key", "data": {"key": SECRET}}))
    assert noetl("credentials", "put", "--file", "hook.json")[0] == 0
    code, output, errors = noetl("dag", "deploy", "dag.yaml", "--activate")
    assert code == 0, output + errors
    started: list[subprocess.Popen[str]] = []

    def begun(*arguments: str) -> subprocess.Popen[str]:
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "noetl", *arguments], cwd=tmp_path, env=dict(os.environ),
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        started.append(process)
        return process

    yield begun
    for process in started:
        process.kill()
        process.communicate()


def serving(begin: Begin) -> tuple[subprocess.Popen[str], str]:
    """Start a server with a worker and return its address."""
    process = begin("server", "--port", "0", "--workers-slots", "2")
    assert process.stdout is not None
    return process, process.stdout.readline().strip().removeprefix("listening on ")


def sent(
    url: str, body: bytes, secret: str = SECRET, *, ago: int = 0, path: str = "default/default/shop/orders"
) -> Any:
    """Send a body to a webhook and return status and answer."""
    headers = {"X-Noetl-Signature": signature_of(secret.encode(), body, seconds=int(time.time()) - ago)}
    request = urllib.request.Request(f"{url}/api/hooks/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def status(noetl: Noetl) -> dict[str, Any]:
    """Return what is seen of each job."""
    return {job["name"]: job for job in json.loads(noetl("dag", "status", "shop", "--json")[1])["jobs"]}


def until(noetl: Noetl, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Look until something holds of the jobs; the server is another process and sends no signal."""
    deadline = time.monotonic() + 60
    while not holds(found := status(noetl)):
        assert time.monotonic() < deadline, found  # each look is a process of its own, so there is no hurry
    return found


def test_what_is_sent_becomes_rows_and_what_is_forged_does_not(noetl: Noetl, begin: Begin) -> None:
    """INV-68."""
    assert (status(noetl)["orders"]["rows"], status(noetl)["orders"]["state"]) == (0, "Pending")
    server, url = serving(begin)
    body = b'[{"id": 1, "amount": 2.5, "note": "x"}, {"id": 2, "amount": 4}]'
    code, first = sent(url, body)
    assert (code, first["new"]) == (202, True)
    noetl("events", first["execution_id"], "--follow")
    run = json.loads(noetl("executions", "show", first["execution_id"], "--json")[1])
    assert (run["status"], run["error"]) == ("COMPLETED", None)
    assert json.loads(noetl("datasets", "head", "totals", "--json")[1]) == [{"orders": 2, "amount": 6.5}]
    code, lines = sent(url, b'{"id": 2, "amount": 9}\n{"id": 3, "amount": 1.5}\n')
    noetl("events", lines["execution_id"], "--follow")
    assert json.loads(noetl("datasets", "head", "totals", "--json")[1]) == [{"orders": 3, "amount": 8.0}]

    refused = sent(url, body, "forged")
    assert refused[0] == 401
    assert refused == sent(url, body, ago=3600) == sent(url, body, path="default/default/shop/nothing")
    assert refused == sent(url, body, path="default/another/shop/orders")
    assert sent(url, b'{"id": 1, "note": "' + b"x" * 300 + b'"}')[0] == 413
    code, problem = sent(url, b'{"id": "one"}')
    assert (code, problem["detail"]) == (400, "row 1, id is text that is no int64")
    seconds = int(time.time())
    headers = {"X-Noetl-Signature": signature_of(SECRET.encode(), body, seconds=seconds)}
    answers = []
    for _ in range(2):
        request = urllib.request.Request(f"{url}/api/hooks/default/default/shop/orders", body, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            answers.append(json.load(answer))
    assert [one["new"] for one in answers] == [True, False]
    assert answers[0]["execution_id"] == answers[1]["execution_id"]
    assert status(noetl)["totals"]["state"] == "Running", "it is never idle"

    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        told = answer.read().decode()
    assert re.search(r'noetl_jobs\{started_by="webhook",state="(Pending|Running)"\} 1', told), told
    assert re.search(r'noetl_jobs\{started_by="reactive",state="Running"\} 1', told)
    assert SECRET not in told + Path("0.log").read_text()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def test_a_source_is_kept_running_paused_resumed_and_survives_its_server(noetl: Noetl, begin: Begin) -> None:
    """INV-67."""
    server, _ = serving(begin)
    until(noetl, lambda jobs: jobs["ticks"]["rows"] >= 3 and jobs["ticks"]["state"] == "Running")
    server.kill()
    server.wait()
    before = status(noetl)["ticks"]["rows"]
    again, _ = serving(begin)
    until(noetl, lambda jobs: jobs["ticks"]["rows"] >= before + 2)
    code, output, _ = noetl("dag", "pause", "shop", "ticks")
    assert (code, output) == (0, "shop.ticks is paused; `noetl dag resume shop ticks` lets it go on\n")
    until(noetl, lambda jobs: jobs["ticks"]["state"] == "Pending" and not jobs["ticks"]["tasks"].get("Running"))
    paused = status(noetl)["ticks"]["rows"]
    table = noetl("dag", "status", "shop")[1]
    assert re.search(r"ticks +always_on +Pending", table), table
    code, _, errors = noetl("dag", "pause", "shop", "by_hand")
    assert (code, "is not kept running" in errors) == (2, True)
    assert noetl("dag", "resume", "shop", "ticks")[:2] == (0, "shop.ticks goes on\n")
    until(noetl, lambda jobs: jobs["ticks"]["rows"] >= paused + 2)
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 0
    rows = [row["tick"] for row in json.loads(noetl("datasets", "head", "ticks", "-n", "1000", "--json")[1])]
    assert sorted(rows) == list(range(1, len(rows) + 1)), "nothing is lost and nothing twice"


def test_a_source_is_started_by_hand(noetl: Noetl, begin: Begin) -> None:
    code, output, errors = noetl("dag", "emit", "shop", "by_hand", "--wait", "--key", "one")
    assert (code, errors) == (0, "")
    assert re.search(r"the run completed \(execution \d+\)", output)
    told = json.loads(noetl("dag", "emit", "shop", "by_hand", "--wait", "--key", "one", "--json")[1])
    assert (told["status"], told["execution_id"] in output) == ("completed", True)
    opened = json.loads(noetl("dag", "emit", "shop", "by_hand", "--json")[1])
    assert (opened["status"], opened["execution_id"] in output) == ("open", False)
    assert noetl("dag", "emit", "shop", "orders")[0] == 2
    assert noetl("dag", "emit", "shop", "nothing")[0] != 0
