"""`noetl server`, `noetl worker` and `noetl dev` as processes: work done over HTTP and on the database, and their ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.acceptance.processes import Begin, line, processes_in

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

EXISTING = Path(__file__).parents[1] / "playbooks" / "existing"

HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: demo/hello}
workload: {name: world, seconds: 0}
workflow:
  - step: greet
    tool:
      kind: shell
      command: "sleep {{ workload.seconds }}; echo hello {{ workload.name }}"
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(3) }}", iterator: item, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: noop}
"""

LONG = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: long, path: demo/long}
workload: {begun: "", go: ""}
workflow:
  - step: each
    loop: {in: "{{ range(4) }}", iterator: n, spec: {mode: parallel, max_in_flight: 1, frame: {max_rows: 1}}}
    tool:
      kind: shell
      command: "[ {{ n }} -ne 1 ] || { echo > {{ workload.begun }}; cat {{ workload.go }}; }"
"""


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts roles in processes of their own; none outlives the test."""
    (tmp_path / "hello.yaml").write_text(HELLO)
    with processes_in(tmp_path) as processes:
        yield processes.begin


def call(url: str, body: Any = None, token: str | None = None) -> Any:
    """Call a route and return its JSON."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.load(answer)


def ended(noetl: Noetl, execution_id: str) -> dict[str, Any]:
    """Wait for an execution's end and return what it came to."""
    noetl("events", execution_id, "--follow")
    facts: dict[str, Any] = json.loads(noetl("executions", "show", execution_id, "--json")[1])
    return facts


@pytest.mark.parametrize("remote", [True, False], ids=["over HTTP", "on the database"])
def test_a_worker_does_what_is_asked_over_http_and_finishes_it_when_it_is_told_to_stop(
    remote: bool, noetl: Noetl, begin: Begin, tmp_path: Path
) -> None:
    """INV-181: of a loop it finishes the frame in hand, and another worker goes on with the next."""
    server = begin("server", "--port", "0")
    url = line(server).removeprefix("listening on ")
    worker = begin("worker", "--slots", "2", *(["--server", url] if remote else []))
    assert line(worker) == f"working with 2 slots {f'for {url}' if remote else 'on the database'}"
    assert noetl("catalog", "register", "hello.yaml")[0] == 0
    started = call(f"{url}/api/execute", {"path": "demo/hello", "payload": {"name": "moon"}})
    assert started["workload"] == {"name": "moon", "seconds": 0}
    facts = ended(noetl, started["execution_id"])
    assert (facts["status"], facts["error"]) == ("COMPLETED", None)
    assert facts["results"]["greet"]["data"]["stdout"].strip() == "hello moon"
    assert [(step["step"], step["done"]) for step in facts["steps"]] == [("greet", 0), ("each", 3)]
    for name in ("frames_as_lists", "results_as_values") if remote else ():
        assert noetl("catalog", "register", str(EXISTING / f"{name}.yaml"))[0] == 0
        facts = ended(noetl, call(f"{url}/api/execute", {"path": f"existing/{name}"})["execution_id"])
        assert (facts["status"], facts["error"]) == ("COMPLETED", None)

    begun, go = tmp_path / "begun", tmp_path / "go"
    os.mkfifo(begun)
    os.mkfifo(go)
    (tmp_path / "long.yaml").write_text(LONG)
    assert noetl("catalog", "register", "long.yaml")[0] == 0
    gates = {"begun": str(begun), "go": str(go)}
    long = call(f"{url}/api/execute", {"path": "demo/long", "payload": gates})["execution_id"]
    begun.read_text()
    slow = call(f"{url}/api/execute", {"path": "demo/hello", "payload": {"seconds": 1}})["execution_id"]
    noetl("events", slow, "--type", "command.claimed", "--limit", "1", "--follow")
    worker.send_signal(signal.SIGTERM)
    assert line(worker) == "SIGTERM: finishing what is under way; once more stops at once"
    go.write_text("on")
    assert worker.wait(30) == 0
    states = {
        step["step"]: step["status"] for step in json.loads(noetl("executions", "show", slow, "--json")[1])["steps"]
    }
    assert states == {"greet": "completed", "each": "running"}, "it finished its command and took nothing new"
    begin("worker", "--slots", "2", *(["--server", url] if remote else []))
    facts = ended(noetl, long)
    assert (facts["status"], facts["steps"][0]["done"]) == ("COMPLETED", 4)
    told = noetl("why", long, "each")[1]
    assert "attempt 1 was handed back" in told
    assert "was lost" not in told
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0


def test_a_worker_over_http_has_the_server_resolve_a_keychain(noetl: Noetl, begin: Begin, tmp_path: Path) -> None:
    """INV-45."""
    (tmp_path / "kept.yaml").write_text(
        """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: kept, path: demo/kept}
keychain:
  - {name: shop, kind: static, scope: global, data: {token: canary-4711, region: eu}}
workflow:
  - step: say
    tool:
      kind: python
      input: {token: "{{ keychain.shop.token }}", region: "{{ keychain.shop.region }}"}
      code: "result = {'length': len(token), 'said': f'{token} of {region}'}"
"""
    )
    server = begin("server", "--port", "0", NOETL_SECRET_KEY=b64encode(bytes(range(32))).decode())
    url = line(server).removeprefix("listening on ")
    worker = begin("worker", "--slots", "1", "--server", url)
    line(worker)
    assert noetl("catalog", "register", "kept.yaml")[0] == 0
    facts = ended(noetl, call(f"{url}/api/execute", {"path": "demo/kept"})["execution_id"])
    assert (facts["status"], facts["error"]) == ("COMPLETED", None)
    assert facts["results"]["say"]["data"] == {"length": 11, "said": "*** of eu"}


def test_a_worker_waits_for_its_server_and_goes_on_when_it_comes_back(noetl: Noetl, begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    worker = begin("worker", "--slots", "2", "--server", url, NOETL_WORKER__REGISTER_SECONDS="0.2")
    assert line(worker) == f"waiting: the server at {url} does not answer: Connection refused"
    assert noetl("catalog", "register", "hello.yaml")[0] == 0
    for number in range(2):
        server = begin("server", "--port", port)
        assert line(server) == f"listening on {url}"
        assert line(worker) == ("the server answers again" if number else f"working with 2 slots for {url}")
        started = call(f"{url}/api/execute", {"path": "demo/hello"})
        assert ended(noetl, started["execution_id"])["status"] == "COMPLETED"
        server.kill()
        server.wait(30)
        assert line(worker).startswith(f"going on asking: the server at {url} does not answer")
    worker.send_signal(signal.SIGTERM)
    assert line(worker).startswith("SIGTERM: "), "an outage is told about once"
    assert worker.wait(30) == 0


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_server_stops_at_once(told: signal.Signals, begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    worker = begin("worker", "--server", url)
    line(worker)
    worker.send_signal(told)
    assert line(worker) == f"{told.name}: stopping at once"
    assert worker.wait(5) == 0, "nothing was cut short"


def test_what_is_no_noetl_server_is_not_waited_for(begin: Begin, tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        worker = begin("worker", "--server", f"http://127.0.0.1:{other.server_port}")
        assert worker.wait(30) == 2
        other.shutdown()
    assert "is no NoETL server" in (tmp_path / "0.log").read_text()


def test_a_second_signal_stops_at_once(noetl: Noetl, begin: Begin) -> None:
    server = begin("server", "--port", "0", "--workers-slots", "2")
    url = line(server).removeprefix("listening on ")
    noetl("catalog", "register", "hello.yaml")
    slow = call(f"{url}/api/execute", {"path": "demo/hello", "payload": {"seconds": 60}})["execution_id"]
    noetl("events", slow, "--type", "command.claimed", "--limit", "1", "--follow")
    server.send_signal(signal.SIGTERM)
    assert line(server).startswith("SIGTERM: finishing")
    server.send_signal(signal.SIGTERM)
    assert line(server) == "SIGTERM: stopping at once"
    assert server.wait(30) == 1
    assert json.loads(noetl("executions", "show", slow, "--json")[1])["status"] == "RUNNING"


def test_with_a_token_a_server_admits_only_those_who_carry_one(noetl: Noetl, begin: Begin) -> None:
    made = {
        role: json.loads(noetl("credentials", "token", "create", "--name", role, "--role", role, "--json")[1])["token"]
        for role in ("writer", "worker")
    }
    server = begin("server", "--port", "0")
    url = line(server).removeprefix("listening on ")
    noetl("catalog", "register", "hello.yaml")
    with pytest.raises(HTTPError, match="401") as unknown:
        call(f"{url}/api/execute", {"path": "demo/hello"})
    unknown.value.close()
    refused = begin("worker", "--server", url)
    assert refused.wait(30) == 1
    refused = begin("worker", "--server", url, NOETL_WORKER__TOKEN=made["writer"])
    assert refused.wait(30) == 1
    worker = begin("worker", "--server", url, NOETL_WORKER__TOKEN=made["worker"])
    assert line(worker) == f"working with 16 slots for {url}"
    started = call(f"{url}/api/execute", {"path": "demo/hello"}, made["writer"])
    assert ended(noetl, started["execution_id"])["status"] == "COMPLETED"


def status_of(url: str, body: Any = None, token: str | None = None) -> int:
    """Return the status a call is answered with."""
    try:
        call(url, body, token)
    except HTTPError as problem:
        problem.close()
        return problem.code
    return 200


def until(status: int, url: str, token: str | None = None) -> None:
    """Ask until the answer has a status; the server learns within a second what other processes do to tokens."""
    begun = time.monotonic()
    while status_of(url, token=token) != status:
        assert time.monotonic() - begun < 30, f"{url} is never answered with {status}"


@pytest.mark.parametrize("arguments", [["server"], ["dev", "hello.yaml"]], ids=lambda arguments: arguments[0])
def test_tokens_made_while_it_runs_are_asked_for_until_somebody_opens_it(
    arguments: list[str], noetl: Noetl, begin: Begin
) -> None:
    """INV-46, INV-176."""
    url = line(begin(*arguments, "--port", "0")).removeprefix("listening on ")
    noetl("catalog", "register", "hello.yaml")
    listing, execute, hello = f"{url}/api/executions", f"{url}/api/execute", {"path": "demo/hello"}
    assert status_of(listing) == 200
    assert status_of(listing, token="bogus") == 401, "also before there is any token"
    made = {
        role: json.loads(noetl("credentials", "token", "create", "--name", role, "--role", role, "--json")[1])
        for role in ("reader", "writer", "worker")
    }
    until(401, listing)
    tokens = {role: token["token"] for role, token in made.items()}
    assert status_of(execute, hello) == status_of(execute, hello, "bogus") == 401
    assert status_of(execute, hello, tokens["reader"]) == status_of(execute, hello, tokens["worker"]) == 403
    assert status_of(execute, hello, tokens["writer"]) == status_of(listing, token=tokens["reader"]) == 200
    for token in made.values():
        assert status_of(listing) == 401
        noetl("credentials", "token", "revoke", token["token_id"])
    until(401, listing, tokens["reader"])
    assert status_of(listing) == 401, "the end of the last token opens nothing"
    assert json.loads(noetl("credentials", "token", "open", "--yes", "--json")[1]) == {"ended_tokens": 3}
    until(200, listing)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["server", "--host", "0.0.0.0", "--port", "0"], 2, "error: refusing to listen on 0.0.0.0 without tokens"),
        (["worker", "--server", "127.0.0.1:8082"], 2, "error: the server's address is not a URL of the form http://"),
        (["worker", "--server", "ftp://127.0.0.1:8082"], 2, "error: the server's address is not a URL"),
        (["worker", "--server", "http://"], 2, "error: the server's address is not a URL"),
        (["worker", "--server", "http://127.0.0.1:99999"], 2, "error: the server's address is not a URL"),
        (["worker", "--server", "http://ann:secret@127.0.0.1:1"], 2, "error: the server's address is not a URL"),
    ],
)
def test_a_role_that_cannot_start_says_why(arguments: list[str], code: int, said: str, noetl: Noetl) -> None:
    found = noetl(*arguments)
    assert found[0] == code
    assert said in found[2]
    assert "Traceback" not in found[2]


def test_a_port_that_is_taken_is_told_about(noetl: Noetl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, errors = noetl("server", "--port", port)
    assert code == 3
    assert f"error: cannot listen on 127.0.0.1:{port}" in errors


def test_dev_registers_playbooks_as_they_change_and_runs_them(noetl: Noetl, begin: Begin, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    (tmp_path / "other.yaml").write_text("something: else\n")
    dev = begin("dev", "--port", "0", str(tmp_path))
    url = line(dev).removeprefix("listening on ")
    assert line(dev) == f"{file}: registered as demo/hello version 1"
    file.write_text(HELLO.replace("world", "moon"))
    assert line(dev) == f"{file}: registered as demo/hello version 2"
    file.write_text(HELLO.replace("step: each}", "step: eech}"))
    assert line(dev).startswith(f"{file}:10:")
    started = call(f"{url}/api/execute", {"path": "demo/hello"})
    assert started["workload"]["name"] == "moon"
    assert ended(noetl, started["execution_id"])["status"] == "COMPLETED"
    dev.send_signal(signal.SIGINT)
    assert dev.wait(30) == 0


@pytest.mark.parametrize(
    "command", ["run", "dev", "server", "worker", "executions rerun", "catalog register", "schema playbook"]
)
def test_every_command_shows_examples(command: str, noetl: Noetl) -> None:
    code, output, _ = noetl(*command.split(), "--help")
    assert code == 0
    assert f"noetl {command}" in output.split("Examples:")[1]


def test_the_schema_of_playbooks_is_printed(noetl: Noetl) -> None:
    schema = json.loads(noetl("schema", "playbook")[1])
    assert schema["$schema"].endswith("2020-12/schema")
    assert "shell_task" in schema["$defs"]
