"""Every kind of tool in a playbook that runs for real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import nats
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


async def test_http_gives_status_headers_and_the_parsed_body(playbooks: Playbooks, api: str) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {api: ""}
        workflow:
          - step: users
            tool: {kind: http, url: "{{ api }}/api/v1/users", params: {offset: 5, limit: 2}}
            set: {ctx.status: "{{ output.http.status }}", ctx.names: "{{ output.data.data.users | map(attribute='name') | list }}"}
        """),
        {"api": api},
    )

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"status": 200, "names": ["user-6", "user-7"]}
    assert state.results["users"].data["status_code"] == 200


async def test_the_last_of_several_postgres_statements_gives_the_rows(
    playbooks: Playbooks, user_database: asyncpg.Connection
) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: store
            tool:
              kind: postgres
              auth: pg_local
              command: |
                CREATE TABLE note (id int, text text); -- an apostrophe's comment; no end
                INSERT INTO note VALUES (1, 'semi;colon'), (2, 'it''s');
                DO $$ BEGIN PERFORM 1; END $$;
                SELECT id, text, now() IS NOT NULL AS late FROM note ORDER BY id;
            set: {ctx.second: "{{ output.data.rows[1].text }}"}
            next: {arcs: [{step: read}]}
          - step: read
            tool: {kind: postgres, auth: pg_local, query: "SELECT text FROM note WHERE id = $1", params: ["{{ store.rows[0].id }}"]}
        """)
    )

    assert state.status == "COMPLETED", state.error
    store = state.results["store"].data
    assert store["rows"] == [{"id": 1, "text": "semi;colon", "late": True}, {"id": 2, "text": "it's", "late": True}]
    assert (store["row_count"], store["statement_count"]) == (2, 4)
    assert state.ctx == {"second": "it's"}
    assert state.results["read"].data["rows"] == [{"text": "semi;colon"}]
    assert await user_database.fetchval("SELECT count(*) FROM note") == 2


async def test_duckdb_reads_what_an_earlier_step_wrote_to_its_file(playbooks: Playbooks, tmp_path: Path) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {file: ""}
        workflow:
          - step: write
            tool: {kind: duckdb, database: "{{ file }}", command: ["CREATE TABLE n AS SELECT range AS i FROM range(5)", "SELECT count(*) AS n FROM n"]}
            next: {arcs: [{step: read}]}
          - step: read
            tool: {kind: duckdb, database: "{{ file }}", query: "SELECT sum(i)::int AS total FROM n WHERE i > {{ write.rows[0].n - 3 }}"}
        """),
        {"file": str(tmp_path / "own.duckdb")},
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["read"].data["rows"] == [{"total": 7}]


async def test_python_takes_code_in_its_three_forms(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {who: world}
        workflow:
          - step: assigns
            tool: {kind: python, input: {n: 2}, code: "result = {'n': n + 1, 'all': input_data}"}
            next: {arcs: [{step: returns}]}
          - step: returns
            tool:
              kind: python
              input: {n: "{{ assigns.n }}"}
              code: |
                if n > 2:
                    return {'n': n * 10}
                return None
            next: {arcs: [{step: defines}]}
          - step: defines
            tool:
              kind: python
              input: {n: "{{ returns.n }}"}
              code: |
                def main(n, workload, assigns, absent='default'):
                    return {'n': n, 'who': workload['who'], 'before': assigns['n'], 'absent': absent}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["assigns"].data == {"n": 3, "all": {"n": 2}}
    assert state.results["defines"].data == {"n": 30, "who": "world", "before": 3, "absent": "default"}


async def test_shell_runs_commands_and_a_failing_one_fails_the_step(playbooks: Playbooks, tmp_path: Path) -> None:
    text = playbook("""
    workload: {place: ""}
    workflow:
      - step: run
        tool: {kind: shell, cwd: "{{ place }}", env: {WHO: "it's; me"}, cmds: ["printf '%s' \\"$WHO\\" > out", "cat out"]}
        set: {ctx.said: "{{ output.data.stdout }}"}
        next: {arcs: [{step: bad}]}
      - step: bad
        tool: {kind: shell, command: "exit 3"}
        next: {arcs: [{step: after, when: "{{ output.error.code == 'exit_3' }}"}]}
      - step: after
        tool: {kind: noop}
    """)
    state = await playbooks.run(text, {"place": str(tmp_path)})

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"said": "it's; me"}
    assert (tmp_path / "out").read_text() == "it's; me"
    assert state.runs["after"] == 1
    assert state.swallowed == 1


async def test_workbook_tasks_take_input_of_their_caller(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workbook:
          - name: add
            tool: {kind: python, input: {a: 1, b: 2}, code: "result = a + b"}
        workflow:
          - step: plain
            tool: {kind: workbook, name: add}
            next: {arcs: [{step: over}]}
          - step: over
            tool:
              - {name: first, kind: workbook, task: add, input: {b: 10}}
              - {name: second, kind: workbook, task: add, input: {a: "{{ first }}"}}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["plain"].data == 3
    assert state.results["over"].data == 13


async def test_transfer_copies_rows_from_http_to_postgres_and_on_to_duckdb(
    playbooks: Playbooks, api: str, user_database: asyncpg.Connection, tmp_path: Path
) -> None:
    await user_database.execute("CREATE TABLE person (number int, name text)")
    state = await playbooks.run(
        playbook("""
        workload: {api: "", file: ""}
        workflow:
          - step: load
            tool:
              kind: transfer
              source: {type: http, url: "{{ api }}/api/v1/users?limit=35", data_path: users}
              target: {type: postgres, auth: pg_local, table: person, mapping: {number: id, name: name}, mode: append}
              chunk_size: 10
            next: {arcs: [{step: make}]}
          - step: make
            tool: {kind: duckdb, database: "{{ file }}", command: "CREATE TABLE person (number int, name text)"}
            next: {arcs: [{step: copy}]}
          - step: copy
            tool:
              kind: transfer
              source: {type: postgres, auth: pg_local, query: "SELECT number, name FROM person WHERE number > 30"}
              target: {type: duckdb, database: "{{ file }}", table: person, mode: overwrite}
            next: {arcs: [{step: count}]}
          - step: count
            tool: {kind: duckdb, database: "{{ file }}", query: "SELECT count(*) AS n, max(name) AS last FROM person"}
        """),
        {"api": api, "file": str(tmp_path / "own.duckdb")},
    )

    assert state.status == "COMPLETED", state.error
    load = state.results["load"].data
    assert (load["rows_read"], load["rows_written"], load["chunks"]) == (35, 35, 4)
    assert state.results["count"].data["rows"] == [{"n": 5, "last": "user-35"}]


async def test_artifacts_are_put_and_got_by_reference(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: put
            tool: {kind: artifact, action: put, input: {data: [{id: 1, name: a}, {id: 2, name: b}]}, format: arrow}
            next: {arcs: [{step: get}]}
          - step: get
            tool: {kind: artifact, action: get, input: {result_ref: "{{ put.data }}"}}
            next: {arcs: [{step: again}]}
          - step: again
            tool: {kind: result_fetch, ref: "{{ put.data }}"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["get"].data["rows"] == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert state.results["again"].data == state.results["get"].data


async def test_scripts_come_from_files_and_servers(playbooks: Playbooks, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("printf hello")

    async def code(_request: web.Request) -> web.Response:
        return web.Response(text="result = {'twice': n * 2}")

    app = web.Application()
    app.router.add_get("/code.py", code)
    async with TestServer(app) as server:
        state = await playbooks.run(
            playbook("""
            workload: {file: "", url: ""}
            workflow:
              - step: shell
                tool: {kind: script, script: {uri: "{{ file }}"}}
                next: {arcs: [{step: python}]}
              - step: python
                tool: {kind: script, input: {n: 21}, script: {uri: "{{ url }}", source: {type: http}}}
            """),
            {"file": str(tmp_path / "run.sh"), "url": str(server.make_url("/code.py"))},
        )

    assert state.status == "COMPLETED", state.error
    assert state.results["shell"].data["stdout"] == "hello"
    assert state.results["python"].data == {"twice": 42}


@pytest.mark.service
async def test_nats_keeps_and_gives_values(playbooks: Playbooks, nats_url: str) -> None:
    await playbooks.credential("bus", "nats", url=nats_url, user="u", password="p")
    client = await nats.connect(nats_url, user="u", password="p")
    await client.jetstream().create_key_value(bucket="kept-by-playbooks")
    await client.close()
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: keep
            tool: {kind: nats, auth: bus, operation: kv_put, bucket: kept-by-playbooks, key: k, value: {id: "007"}}
            next: {arcs: [{step: give}]}
          - step: give
            tool: {kind: nats, auth: bus, operation: kv_get, bucket: kept-by-playbooks, key: k}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["give"].data["value"] == {"id": "007"}


async def test_ten_parents_and_their_children_share_one_slot(playbooks: Playbooks) -> None:
    """INV-42."""
    await playbooks.worker(slots=1)
    await playbooks.register(
        playbook(
            """
            workload: {n: 0}
            workflow:
              - step: work
                tool: {kind: python, input: {n: "{{ n }}"}, code: "result = {'n': n * n}"}
            """,
            "tests/child",
        )
    )
    parent = playbook("""
    workload: {n: 0}
    workflow:
      - step: alone
        tool: {kind: playbook, path: tests/child, input: {n: "{{ n }}"}, return_step: work}
        next: {arcs: [{step: within}]}
      - step: within
        tool:
          - {name: once_more, kind: playbook, path: tests/child, input: {n: "{{ alone.n }}"}}
          - {name: add, kind: python, input: {a: "{{ alone.n }}", b: "{{ once_more.n }}"}, code: "result = a + b"}
    """)
    started = [await playbooks.start(parent, {"n": n}) for n in range(10)]
    states = await asyncio.gather(*(playbooks.finished(state.execution_id) for state in started))

    assert [state.status for state in states] == ["COMPLETED"] * 10
    assert [state.results["within"].data for state in states] == [n**2 + n**4 for n in range(10)]
