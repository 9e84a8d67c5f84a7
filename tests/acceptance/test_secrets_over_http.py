"""INV-132: a server without tokens and a worker over HTTP use secrets; no answer of any route and no log shows one."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from uuid import uuid4

import pytest
from tests.acceptance.processes import Begin, line, processes_in

from noetl.api.endpoint import Endpoint
from noetl.api.routes.all_routes import endpoints
from noetl.services.credentials.local_secrets import find_local_token

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

USES = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: uses, path: demo/uses}
keychain:
  - {name: shop, kind: credential, scope: global, auth: crm}
workflow:
  - step: say
    tool:
      kind: python
      input: {token: "{{ keychain.shop.token }}"}
      code: "result = {'length': len(token), 'said': token}"
    next: {arcs: [{step: key}]}
  - step: key
    tool: {kind: secrets, name: SECRET_OF_THE_SERVER}
    next: {arcs: [{step: use}]}
  - step: use
    tool: {kind: python, input: {key: "{{ key.value }}"}, code: "result = {'length': len(key), 'said': key}"}
    next: {arcs: [{step: ask}]}
  - step: ask
    tool: {kind: http, url: "http://127.0.0.1:1/closed", auth: crm}
"""


@pytest.fixture
def begin(noetl: Noetl, tmp_path: Path) -> Iterator[Begin]:
    """Starts roles in processes of their own, each with a log; none outlives the test."""
    with processes_in(tmp_path) as processes:
        yield processes.begin


def answer(url: str, method: str, body: Any = None, **headers: str) -> str:
    """Call a route and return what it answers, a refusal too."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as given:
            return str(given.read().decode(errors="replace"))
    except HTTPError as refusal:
        with refusal:
            return refusal.read().decode(errors="replace")


def local(project: Path) -> dict[str, str]:
    """Return the headers that show the token of a project's server, without which it takes no credential."""
    token = find_local_token(project / ".noetl" / "keys")
    assert token is not None
    return {"Authorization": f"Bearer {token.reveal()}"}


def asked(endpoint: Endpoint, url: str, known: dict[str, str]) -> str:
    """Call a route about what is known, with every query and body that could make it show a secret."""
    names = {name: quote(known.get(name, "crm"), safe="/") for name in endpoint.parameters}
    query = urlencode({"ref": known["ref"]}) if endpoint.template == "/api/result/resolve" else ""
    body = {"name": "crm", "path": "demo/uses", "execution_id": known["execution_id"], "worker_id": "w"}
    bodies: list[Any] = [None] if endpoint.method != "POST" else [{"name": "crm"}, {"path": "demo/uses"}, body, {}]
    return "".join(
        answer(f"{url}{endpoint.template.format(**names)}?{one}", endpoint.method, given)
        for one in (query, "include_data=true", "limit=5")
        for given in bodies
    )


def test_no_answer_shows_a_secret_that_a_worker_over_http_was_given(noetl: Noetl, begin: Begin, tmp_path: Path) -> None:
    canary = f"canary-{uuid4().hex}"
    (tmp_path / "uses.yaml").write_text(USES)
    key = base64.b64encode(bytes(range(32))).decode()
    server = begin("server", "--port", "0", NOETL_SECRET_KEY=key, SECRET_OF_THE_SERVER=canary[::-1])
    url = line(server).removeprefix("listening on ")
    put = answer(
        f"{url}/api/credentials",
        "POST",
        {"name": "crm", "type": "bearer", "data": {"token": canary}},
        **local(tmp_path),
    )
    worker = begin("worker", "--slots", "1", "--server", url)
    line(worker)
    assert noetl("catalog", "register", "uses.yaml")[0] == 0
    execution_id = json.loads(answer(f"{url}/api/execute", "POST", {"path": "demo/uses"}))["execution_id"]
    noetl("events", execution_id, "--follow")
    facts = json.loads(noetl("executions", "show", execution_id, "--json")[1])
    assert (facts["status"], facts["results"]["say"]["data"]) == ("FAILED", {"length": len(canary), "said": "***"})
    assert facts["results"]["key"]["data"]["value"] == {"secret_ref": "environment:SECRET_OF_THE_SERVER"}
    assert facts["results"]["use"]["data"] == {"length": len(canary), "said": "***"}
    assert "127.0.0.1:1" in facts["error"], "the http task was given its credential and went out"

    known = {"execution_id": execution_id, "path": "demo/uses", "ref": "noetl://x"}
    routes = [one for one in endpoints() if one.method != "DELETE"]
    told = {f"{one.method} {one.template}": asked(one, url, known) for one in routes}
    assert "***" in told["GET /api/executions/{execution_id}/events"], "routes are asked about what there is"
    assert '"sealed":' in told["POST /api/worker/credential"]
    told |= {"POST of the credential": put} | {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    both = (canary.encode(), canary[::-1].encode())
    forms = [form for one in both for form in (one.decode(), base64.b64encode(one)[:-4].decode(), one.hex())]
    assert [where for where, text in told.items() if any(form in text for form in forms)] == []


def test_a_worker_of_another_home_is_told_how_to_be_given_secrets(noetl: Noetl, begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "uses.yaml").write_text(USES)
    server = begin("server", "--port", "0", NOETL_SECRET_KEY=base64.b64encode(bytes(range(32))).decode())
    url = line(server).removeprefix("listening on ")
    answer(
        f"{url}/api/credentials",
        "POST",
        {"name": "crm", "type": "bearer", "data": {"token": "hunter2-hunter2"}},
        **local(tmp_path),
    )
    worker = begin("worker", "--slots", "1", "--server", url, NOETL_HOME=str(tmp_path / "elsewhere"))
    line(worker)
    noetl("catalog", "register", "uses.yaml")
    execution_id = json.loads(answer(f"{url}/api/execute", "POST", {"path": "demo/uses"}))["execution_id"]
    noetl("events", execution_id, "--follow")
    facts = answer(f"{url}/api/executions/{execution_id}", "GET")
    assert "a worker without a token is given secrets only by a server of its own home directory" in facts
    assert "hunter2-hunter2" not in facts
