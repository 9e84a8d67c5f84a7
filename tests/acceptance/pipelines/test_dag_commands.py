"""`noetl dag` from a project's first file to a rollback, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def home(tmp_path: Path, spark_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything of NoETL's own below a folder of the test's own, but for the archive of Spark's classes."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NOETL_SPARK__CACHE_DIRECTORY", str(spark_cache))
    monkeypatch.setenv("NOETL_SPARK__DRIVER_MEMORY", "512m")
    return tmp_path


@pytest.mark.timeout(300)
def test_a_new_project_runs_as_it_is(noetl: Noetl, home: Path) -> None:
    code, output, _ = noetl("dag", "init", "store")
    assert (code, output.splitlines()[-1]) == (0, "Now run it: noetl dag run store/dag.yaml")
    code, _, errors = noetl("dag", "init", "store")
    assert (code, "has README.md, dag.yaml, orders.py already" in errors) == (2, True)
    code, output, errors = noetl("dag", "run", "store/dag.yaml")
    assert code == 0, output + errors
    assert errors == ""
    assert output.splitlines()[0].startswith("store: version ")
    assert "  completed sales_by_region\n" in output
    rows = json.loads(noetl("datasets", "head", "sales_by_region", "--json")[1])
    assert {row["region"]: row["amount"] for row in rows} == {"north": "62.00", "south": "5.00", "west": "7.50"}
    shown = json.loads(noetl("tasks", "show", "last", "--json")[1])
    assert shown["attempts"][0]["application_id"].startswith("local-")


def test_a_dag_is_planned_deployed_activated_and_rolled_back(noetl: Noetl, home: Path) -> None:
    write_shop(home)
    plan = json.loads(noetl("dag", "plan", "dag.yaml", "--json")[1])
    assert [(job["name"], job["action"]) for job in plan["jobs"]] == [("orders", "create"), ("copies", "create")]
    assert json.loads(noetl("dag", "list", "--json")[1]) == []
    first = json.loads(noetl("dag", "deploy", "dag.yaml", "--activate", "--json")[1])
    assert (first["created"], first["status"]) == (True, "completed")
    assert "these files are what serves already" in noetl("dag", "plan", "dag.yaml")[1]
    again = json.loads(noetl("dag", "deploy", "dag.yaml", "--wait", "--json")[1])
    assert (again["created"], again["dag_version_id"]) == (False, first["dag_version_id"])

    write_shop(home, "{days: 3}")
    assert "~ copies  rebuild: reads orders, which is rebuilt" in noetl("dag", "plan", "dag.yaml")[1]
    second = json.loads(noetl("dag", "deploy", "dag.yaml", "--wait", "--json")[1])
    assert _rows(noetl) == 6
    status = json.loads(noetl("dag", "status", "shop", "--json")[1])
    assert (status["version"]["status"], status["current"]) == ("ready", first["dag_version_id"])
    cutover = json.loads(noetl("dag", "activate", "shop", "--json")[1])
    assert (cutover["switched"]["dag_version_id"], cutover["caught_up"]) == (second["dag_version_id"], None)
    assert _rows(noetl) == 9
    assert noetl("dag", "activate", "shop")[1] == f"version {second['dag_version_id'][:8]} of shop serves already\n"

    code, output, _ = noetl("dag", "rollback", "shop", "--to", first["dag_version_id"][:8])
    assert (code, "serves readers now, instead of" in output) == (0, True)
    assert _rows(noetl) == 6
    assert noetl("dag", "activate", "shop", second["dag_version_id"][:8])[0] == 0
    assert noetl("dag", "rollback", "shop")[0] == 0
    versions = {row.split()[1]: row.split()[2] for row in noetl("dag", "list", "shop")[1].splitlines()[1:]}
    assert versions == {first["dag_version_id"][:8]: "active", second["dag_version_id"][:8]: "retired"}


def test_files_that_serve_already_run_their_sources_once_more(noetl: Noetl, home: Path) -> None:
    write_shop(home)
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    code, output, _ = noetl("dag", "run", "dag.yaml")
    assert (code, "serves already; its sources run once more" in output) == (0, True)
    jobs = [task["job"] for task in json.loads(noetl("tasks", "list", "--json")[1])]
    assert jobs == ["orders", "copies", "orders"]
    assert _rows(noetl) == 6


def test_a_build_without_spark_never_starts_it(noetl: Noetl, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home / "nowhere"))
    write_shop(home)
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    assert not (home / "home" / "spark").exists()


def test_a_build_that_failed_is_mended_task_by_task_and_marked_ready(noetl: Noetl, home: Path) -> None:
    write_shop(home, f"{{days: 2, flag: {home / 'open'}}}")
    code, output, _ = noetl("dag", "deploy", "dag.yaml", "--wait")
    assert (code, "  failed    orders: playbook shop/rows ran as execution" in output) == (1, True)
    code, _, errors = noetl("dag", "ready", "shop")
    assert (code, "is not ready: 1 failed task of job orders" in errors) == (2, True)
    code, _, errors = noetl("dag", "activate", "shop")
    assert (code, "no version of DAG shop is ready" in errors) == (2, True)
    (home / "open").touch()
    again = json.loads(noetl("dag", "deploy", "dag.yaml", "--wait", "--json")[1])
    assert (again["created"], again["status"]) == (True, "completed")
    code, _, errors = noetl("dag", "ready", "shop")
    assert (code, "no version of DAG shop waits to be ready" in errors) == (2, True)
    assert noetl("dag", "activate", "shop")[0] == 0


def test_mistakes_are_answered_in_one_line(noetl: Noetl, home: Path) -> None:
    (home / "bad.yaml").write_text("name: bad\njobs: [{name: a, sql: 'SELECT', operator: nope}]\n")
    for arguments, code, message in (
        (["plan", "none.yaml"], 2, "none.yaml cannot be read"),
        (["plan", "bad.yaml"], 2, "bad.yaml:2:"),
        (["status", "nope"], 1, "there is no DAG nope"),
        (["list", "nope"], 1, "there is no DAG nope"),
        (["ready", "nope"], 1, "there is no DAG nope"),
        (["activate", "nope"], 1, "there is no DAG nope"),
        (["activate", "nope", "3f2a"], 1, "there is no DAG nope"),
        (["rollback", "nope"], 1, "there is no DAG nope"),
        (["rollback", "nope", "--to", "3f2a"], 1, "there is no DAG nope"),
    ):
        found, output, errors = noetl("dag", *arguments)
        assert (found, output) == (code, ""), arguments
        assert errors.startswith("error: ")
        assert message in errors
        assert "Traceback" not in errors


@pytest.mark.parametrize("command", ["dag", "datasets", "tasks"])
def test_every_command_shows_examples(noetl: Noetl, command: str) -> None:
    names = [line.split()[0] for line in noetl(command, "--help")[1].partition("Commands:")[2].splitlines() if line]
    assert len(names) > 4
    for name in names:
        assert f"noetl {command} {name}" in noetl(command, name, "--help")[1]


def _rows(noetl: Noetl) -> int:
    return len(json.loads(noetl("datasets", "head", "shop_orders", "--json")[1]))
