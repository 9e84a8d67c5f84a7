"""DAGs over the API: uploaded, planned, deployed, built, activated, started again and rolled back."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

import pytest
from tests.integration.api.serving import Server
from tests.integration.pipelines.tasks.task_testbed import DAG, TaskTestbed

CHANGED = DAG.replace("  - name: totals\n", "  - name: totals\n    config: {note: other}\n")


def packed(text: str = DAG, *, compression: int = zipfile.ZIP_STORED, **files: str) -> dict[str, str]:
    """Return a DAG with its files as a request has them."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, content in {**files, "dag.yaml": text}.items():
            archive.writestr(name, content)
    return {"bundle": base64.b64encode(target.getvalue()).decode()}


async def deployed(server: Server, text: str = DAG, **headers: str) -> dict[str, Any]:
    """Deploy a DAG."""
    return dict(await server.call("POST", "/api/dags/deploy", packed(text), headers=headers))


async def built(server: Server, testbed: TaskTestbed, text: str = DAG) -> dict[str, Any]:
    """Deploy a DAG, and do all its tasks."""
    answer = await deployed(server, text)
    await testbed.work()
    run = await server.call("GET", f"/api/dags/shop/runs/{answer['execution_id']}?wait=20", status=200)
    assert (run["status"], run["error"]) == ("completed", None)
    return answer


async def test_a_dag_is_planned_deployed_built_and_activated(server: Server, testbed: TaskTestbed) -> None:
    plan = await server.call("POST", "/api/dags/plan", packed(), status=200)
    assert {job["name"]: job["action"] for job in plan["jobs"]} == dict.fromkeys(
        ("orders", "clean", "totals"), "create"
    )
    assert (await server.call("GET", "/api/dags", status=200))["dags"] == []
    first = await server.call("POST", "/api/dags/deploy", packed(), status=201)
    assert (first["dag"], first["created"], first["dag_version_id"]) == ("shop", True, plan["dag_version_id"])
    status = await server.call("GET", "/api/dags/shop/status", status=200)
    assert status["version"]["status"] == "building"
    assert status["obstacles"]
    refused = await server.call("POST", "/api/dags/shop/ready", status=400)
    assert "not ready" in refused["detail"]
    waiting = await server.call("GET", f"/api/dags/shop/runs/{first['execution_id']}", status=200)
    assert waiting["status"] == "open"
    await testbed.work()
    await server.call("GET", f"/api/dags/shop/runs/{first['execution_id']}?wait=20", status=200)
    cutover = await server.call("POST", "/api/dags/shop/activate", status=200)
    assert (cutover["dag_version_id"], cutover["previous"], cutover["changed"]) == (first["dag_version_id"], None, True)
    (listed,) = (await server.call("GET", "/api/dags"))["dags"]
    assert (listed["current"], listed["newest_status"], listed["versions"]) == (first["dag_version_id"], "active", 1)


async def test_the_same_files_deploy_to_nothing_however_they_are_zipped(server: Server, testbed: TaskTestbed) -> None:
    first = await built(server, testbed)
    squeezed = packed(compression=zipfile.ZIP_DEFLATED, **{"notes.txt": "no job needs this"})
    again = await server.call("POST", "/api/dags/deploy", squeezed, status=200)
    assert (again["dag_version_id"], again["execution_id"], again["created"]) == (
        first["dag_version_id"],
        first["execution_id"],
        False,
    )


async def test_a_key_stands_for_one_deploy(server: Server) -> None:
    key = {"Idempotency-Key": "monday"}
    first = await deployed(server, **key)
    again = await deployed(server, **key)
    assert again == first
    assert again["created"]
    refused = await server.call("POST", "/api/dags/deploy", packed(CHANGED), headers=key, status=422)
    assert refused["code"] == "idempotency_key_reused"


async def test_a_change_is_served_and_rolled_back(server: Server, testbed: TaskTestbed) -> None:
    first = await built(server, testbed)
    await server.call("POST", "/api/dags/shop/activate", status=200)
    second = await built(server, testbed, CHANGED)
    assert [job["name"] for job in second["plan"]["jobs"] if job["action"] == "rebuild"] == ["totals"]
    chosen = {"version": second["dag_version_id"][:13]}
    assert (await server.call("POST", "/api/dags/shop/activate", chosen, status=200))["changed"]
    back = await server.call("POST", "/api/dags/shop/rollback", status=200)
    assert (back["dag_version_id"], back["previous"]) == (first["dag_version_id"], second["dag_version_id"])
    page = await server.call("GET", "/api/dags/shop/versions?limit=1", status=200)
    (newest,) = page["versions"]
    assert (newest["dag_version_id"], newest["status"]) == (second["dag_version_id"], "retired")
    rest = await server.call("GET", f"/api/dags/shop/versions?cursor={page['next_cursor']}", status=200)
    assert [one["status"] for one in rest["versions"]] == ["active"]
    assert rest["next_cursor"] is None


async def test_a_source_is_started_once_under_a_key(server: Server, testbed: TaskTestbed) -> None:
    await built(server, testbed)
    await server.call("POST", "/api/dags/shop/activate", status=200)
    key = {"Idempotency-Key": "nightly"}
    run = await server.call("POST", "/api/dags/shop/emit", {"job": "orders"}, headers=key, status=201)
    again = await server.call("POST", "/api/dags/shop/emit", {"job": "orders"}, headers=key, status=201)
    assert again["execution_id"] == run["execution_id"]
    assert (await testbed.work(salt="again"))[0] == "orders/all"
    ended = await server.call("GET", f"/api/dags/shop/runs/{run['execution_id']}?wait=20", status=200)
    assert ended["status"] == "completed"
    await server.call("GET", f"/api/dags/other/runs/{run['execution_id']}", status=404)
    refused = await server.call("POST", "/api/dags/shop/emit", {"job": "clean"}, status=400)
    assert "started by what it reads" in refused["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"bundle": base64.b64encode(b"no zip").decode()}, "cannot be opened"),
        (packed("name: shop\njobs: [{name: a}, {name: a}]\n"), "dag.yaml"),
        (packed(**{"../outside.py": "x = 1"}), "no file below a directory"),
        (packed(**{"dag.yaml/inner": "a file within a file"}), "cannot be opened"),
    ],
)
async def test_files_that_make_no_dag_are_refused(server: Server, body: dict[str, str], words: str) -> None:
    for path in ("/api/dags/plan", "/api/dags/deploy"):
        refused = await server.call("POST", path, body, status=400)
        assert words in refused["detail"]
        assert "/tmp" not in refused["detail"]


async def test_what_is_not_there_is_not_found(server: Server) -> None:
    for method, path in (
        ("GET", "/api/dags/none/versions"),
        ("GET", "/api/dags/none/status"),
        ("POST", "/api/dags/none/activate"),
        ("POST", "/api/dags/none/rollback"),
        ("POST", "/api/dags/none/ready"),
        ("GET", "/api/dags/none/runs/123456789012345678"),
    ):
        refused = await server.call(method, path, status=404)
        assert refused["code"] == "not_found"
