"""Secrets that playbooks use, print, return and raise: afterwards they stand nowhere but in encrypted columns."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import zstandard
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.engine.plan.state import State
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

ZSTD = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Canaries:
    """Secrets of the test's own, each unlike anything else in the world."""

    password: str
    bearer: str
    client_secret: str
    access_token: str
    api_key: str

    def forms(self) -> list[bytes]:
        """Return every secret as it would stand in a table or a file."""
        texts = list(vars(self).values())
        return [
            form
            for text in texts
            for form in (text.encode(), base64.b64encode(text.encode())[:-4], text.encode().hex().encode())
        ]


@pytest.fixture
def canaries() -> Canaries:
    """Five secrets."""
    return Canaries(*(f"{name}-{uuid4().hex}" for name in ("Pw", "Bearer", "Client", "Access", "Key")))


@pytest.fixture
async def echo(canaries: Canaries) -> AsyncIterator[str]:
    """A server that gives out a token, and repeats everything it is told."""

    async def token(request: web.Request) -> web.Response:
        given = await request.post()
        is_known = (
            canaries.client_secret in (given.get("client_secret"), *request.headers.values())
            or "Authorization" in request.headers
        )
        return web.json_response(
            {"access_token": canaries.access_token, "expires_in": 600}, status=200 if is_known else 401
        )

    async def repeat(request: web.Request) -> web.Response:
        said = {"headers": dict(request.headers), "query": dict(request.query), "text": await request.text()}
        return web.json_response(said, status=int(request.query.get("status", 200)))

    app = web.Application()
    app.router.add_post("/token", token)
    app.router.add_route("*", "/echo", repeat)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.fixture
async def secret_database(
    playbooks: Playbooks, canaries: Canaries, postgres_server: EmbeddedServer, empty_url: str
) -> AsyncIterator[None]:
    """A database that is entered with a password, known to playbooks as `pg_secret`."""
    parts = psycopg.conninfo.conninfo_to_dict(empty_url)
    role = f"canary_{parts['dbname']}"
    admin = await asyncpg.connect(postgres_server.url("noetl_admin", str(parts["dbname"])))
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{canaries.password}'")
    await playbooks.credential(
        "pg_secret", "postgres", db_host="127.0.0.1", db_port=int(str(parts["port"])), db_user=role,
        db_password=canaries.password, db_name=parts["dbname"],
    )  # fmt: skip
    yield
    await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    await admin.close()


async def learned(playbooks: Playbooks, canaries: Canaries, found: list[str]) -> None:
    """Note every place where a secret stands in the clear."""
    forms = canaries.forms()
    connection = await asyncpg.connect(playbooks.owner_url)
    tables = await connection.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    assert any(row["name"] == "noetl.event" for row in tables)
    for table in tables:
        for row in await connection.fetch(f"SELECT t::text AS text FROM {table['name']} AS t"):
            found += [f"{table['name']}: {row['text'][:300]}" for form in forms if form.decode() in row["text"]]
    await connection.close()
    files = [path for path in playbooks.home.rglob("*") if path.is_file()]
    assert any("payloads" in path.parts for path in files)
    for path in files:
        found += [f"{path}: {data[:300]!r}" for data in _contents(path) for form in forms if form in data]


def _contents(path: Path) -> list[bytes]:
    data = path.read_bytes()
    if not data.startswith(ZSTD):
        return [data]
    return [data, zstandard.ZstdDecompressor().decompressobj().decompress(data)]


PLAYBOOK = playbook("""
workload: {echo: ""}
keychain:
  - {name: login, kind: credential, auth: api_secret}
  - {name: fixed, kind: static, data: {token: "{{ keychain.login.key }}", pair: "me:{{ keychain.login.key }}"}}
  - {name: granted, kind: oauth2, auth: client, endpoint: "{{ workload.echo }}/token", scope: global}
workflow:
  - step: http
    tool:
      - {name: bearer, kind: http, auth: bearer_secret, url: "{{ echo }}/echo?again={{ keychain.granted.access_token }}"}
      - {name: posted, kind: http, method: POST, url: "{{ echo }}/echo", headers: {X-Key: "{{ keychain.fixed.token }}"}, json: {pair: "{{ keychain.fixed.pair }}"}}
      - name: refused
        kind: http
        url: "{{ echo }}/echo?status=500&key={{ keychain.fixed.token }}"
        spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.answer: "{{ output.data }}", iter.own: "{{ keychain.fixed.token }}"}}}}]}}
      - {name: down, kind: http, url: "http://127.0.0.1:1/{{ keychain.fixed.token }}", spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
    set: {ctx.header: "{{ output }}"}
    next: {arcs: [{step: sql}]}
  - step: sql
    tool:
      - {name: rows, kind: postgres, auth: pg_secret, command: "SELECT '{{ keychain.fixed.token }}' AS token, $1::text AS more", params: ["{{ keychain.granted.access_token }}"], set: {ctx.row: "{{ output.data.rows[0] }}"}}
      - {name: bad, kind: postgres, auth: pg_secret, command: "SELECT '{{ keychain.fixed.token }}'::int", spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.why: "{{ output.error.message }}"}}}}]}}}
      - {name: local, kind: duckdb, query: "SELECT '{{ keychain.fixed.token }}' AS token"}
    next: {arcs: [{step: shell}]}
  - step: shell
    tool: {kind: shell, env: {KEY: "{{ keychain.fixed.token }}"}, command: "echo $KEY; echo $KEY | base64; echo $KEY >&2; exit 1"}
    next: {arcs: [{step: python, when: "{{ event.name == 'call.error' }}", set: {ctx.shell: "{{ output.error }}"}}]}
  - step: python
    tool:
      kind: python
      input: {token: "{{ keychain.fixed.token }}", granted: "{{ keychain.granted }}"}
      code: |
        import base64, sys
        print(token, file=sys.stderr)
        print(granted)
        result = {'token': token, token: 1, 'list': [f'<{token}>'], 'encoded': base64.b64encode(('x' + token).encode()).decode(), 'granted': granted}
      output: {select: [{path: $.token, as: picked}], accumulate: {enabled: true, strategy: append}}
    set: {ctx.all: "{{ output }}"}
    next: {arcs: [{step: raises}]}
  - step: raises
    tool: {kind: python, input: {token: "{{ keychain.fixed.token }}"}, code: "raise ValueError('cannot use ' + token)"}
    next: {arcs: [{step: large, when: "{{ event.name == 'call.error' }}", set: {ctx.raised: "{{ output.error.message }}"}}]}
  - step: large
    tool: {kind: python, input: {token: "{{ keychain.fixed.token }}"}, code: "result = {'many': [token + str(n) for n in range(3000)]}"}
    next: {arcs: [{step: rows}]}
  - step: rows
    loop: {in: [1, 2, 3, 4], iterator: n, spec: {frame: {max_rows: 2}}}
    tool:
      kind: python
      input: {n: "{{ n }}", token: "{{ keychain.granted.access_token }}"}
      code: |
        if n == 3:
            raise RuntimeError(token)
        result = {'n': n, 'said': 'it is ' + token}
      set: {ctx.last: "{{ output.data }}"}
    next: {arcs: [{step: frames, when: "{{ event.name == 'loop.done' }}"}]}
  - step: frames
    loop: {in: [1, 2], iterator: n, spec: {frame: {process: frame, max_attempts: 1}}}
    tool: {kind: python, input: {token: "{{ keychain.granted.access_token }}"}, code: "raise RuntimeError(token)"}
    next: {arcs: [{step: kept, when: "{{ event.name == 'loop.done' }}"}]}
  - step: kept
    tool:
      - {name: json, kind: artifact, action: put, input: {data: {token: "{{ keychain.fixed.token }}"}}}
      - {name: table, kind: artifact, action: put, format: arrow, input: {data: [{token: "{{ keychain.fixed.token }}", n: 1}]}}
      - {name: read, kind: artifact, action: get, input: {result_ref: "{{ table }}"}}
    next: {arcs: [{step: claims}]}
  - step: claims
    loop:
      cursor: {kind: postgres, auth: pg_secret, claim: "SELECT '{{ keychain.fixed.token }}'::int AS n"}
      iterator: row
      spec: {mode: cursor}
    tool: {kind: noop}
    next: {arcs: [{step: child, when: "{{ event.name == 'call.error' }}", set: {ctx.claim: "{{ output.error }}"}}]}
  - step: child
    tool:
      - name: given
        kind: playbook
        path: tests/child
        input: {token: "{{ keychain.fixed.token }}"}
        spec: {policy: {rules: [{else: {then: {do: continue, set: {ctx.child: "{{ output.error.message | default('none') }}"}}}}]}}
    next: {arcs: [{step: fails}]}
  - step: fails
    tool: {kind: python, input: {token: "{{ keychain.fixed.token }}"}, code: "raise ValueError(f'the end: {token}')"}
""")


async def test_secrets_stand_nowhere_in_the_clear(
    playbooks: Playbooks,
    canaries: Canaries,
    secret_database: None,
    echo: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-45."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, logger="aiohttp.access")  # the server of this test, not the worker
    await playbooks.credential("bearer_secret", "bearer", token=canaries.bearer)
    await playbooks.credential("api_secret", "api_key", key=canaries.api_key)
    await playbooks.credential("client", "oauth2", client_id="me", client_secret=canaries.client_secret)
    await playbooks.register(
        playbook("workload: {token: none}\nworkflow:\n  - step: a\n    tool: {kind: noop}\n", "tests/child")
    )
    result = await playbooks.run_alone(PLAYBOOK, {"echo": echo})
    state = await playbooks.engine.executions.state(playbooks.scope, result.execution_id)

    _was_used(state)
    assert result.status == "FAILED"
    assert result.error == "ValueError: the end: *** (line 1)"
    found: list[str] = []
    await learned(playbooks, canaries, found)
    told = f"{result!r} {state!r} {playbooks.as_shown(state)} {caplog.text}".encode()
    found += [f"log or result: {form!r}" for form in canaries.forms() if form in told]
    assert not found, "\n".join(found[:20])


def _was_used(state: State) -> None:
    """Make sure that the secrets really were where they might have been left."""
    assert set(state.runs) == {
        "http", "sql", "shell", "python", "raises", "large", "rows", "frames", "kept", "claims", "child", "fails",
    }, state.error  # fmt: skip
    assert state.ctx["row"] == {"token": "***", "more": "***"}
    assert state.ctx["raised"] == "ValueError: cannot use *** (line 1)"
    assert "***" in state.ctx["why"]
    assert "***" in str(state.ctx["claim"])
    assert state.ctx["last"] == {"n": 4, "said": "it is ***"}
    assert state.results["python"].selected == {"picked": "***"}
    assert state.results["rows"].data["results"][0] == {"n": 1, "said": "it is ***"}
    assert state.results["kept"].data["rows"] == [{"token": "***", "n": 1}]
    assert "secret" in state.ctx["child"]


async def test_a_secret_that_a_step_reads_is_recorded_as_a_reference(
    playbooks: Playbooks,
    echo: str,
    canaries: Canaries,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INV-175."""
    monkeypatch.setenv("SECRET_API_KEY", canaries.api_key)
    monkeypatch.setenv("SECRET_LOGIN", f'{{"user": "ada", "password": "{canaries.password}"}}')
    state = await playbooks.run(
        playbook("""
        workload: {url: "", which: SECRET_LOGIN}
        workflow:
          - step: key
            tool: {kind: secrets, name: SECRET_API_KEY}
            set: {ctx.kept: "{{ key.value }}"}
            next: {arcs: [{step: send}]}
          - step: send
            tool:
              kind: http
              url: "{{ url }}/echo"
              headers: {X-Key: "{{ key.value }}"}
              params: {long: "{{ key.value | length }}"}
            next: {arcs: [{step: in_a_list}]}
          - step: in_a_list
            tool:
              - {name: login, kind: secrets, secret: "{{ which }}"}
              - {name: say, kind: python, input: {password: "{{ login.fields.password }}", user: "{{ login.value.user }}"}, code: "print(password); result = {'n': len(password), 'user': user, 'said': password}"}
            next: {arcs: [{step: absent}]}
          - step: absent
            tool: {kind: secrets, secret: SECRET_NOBODY_SET}
        """),
        {"url": echo},
    )
    assert (state.status, state.results["key"].data["value"]) == (
        "FAILED", {"secret_ref": "environment:SECRET_API_KEY"},
    )  # fmt: skip
    assert "SECRET_NOBODY_SET" in str(state.error)
    assert state.ctx["kept"] == {"secret_ref": "environment:SECRET_API_KEY"}, "what is recorded is the reference"
    sent = state.results["send"].data["data"]
    assert (sent["headers"]["X-Key"], sent["query"]["long"]) == ("***", str(len(canaries.api_key)))
    said = state.results["in_a_list"].data
    assert (said["n"], said["said"]) == (len(canaries.password), "***")
    found = [record.getMessage() for record in caplog.records if canaries.api_key in record.getMessage()]
    await learned(playbooks, canaries, found)
    assert found == []
