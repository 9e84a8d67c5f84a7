"""`noetl query` as a user types it: ask, in four forms, as of a mark, and look at what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything of NoETL's own below a folder of the test's own."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NOETL_QUERY__MEMORY", "256MB")
    return tmp_path


@pytest.mark.timeout(300)
def test_a_dataset_is_asked_in_sql(noetl: Noetl, home: Path) -> None:
    write_shop(home)
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    code, output, errors = noetl("query", "SELECT count(*) AS n, max(day) AS last FROM shop_orders")
    assert (code, output.split()) == (0, ["n", "last", "6", "2026-01-02"]), errors
    told = errors.splitlines()
    assert told[0].startswith("1 row in ")
    assert told[1].startswith("2 files (")
    assert told[1].endswith("this node had not proven them before")
    assert told[2].startswith("read shop_orders, generation ")
    mark = told[3].removeprefix("as of ")

    write_shop(home, "{days: 3}")
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    question = home / "question.sql"
    question.write_text("-- how many\nSELECT count(*) AS n FROM shop_orders")
    now = noetl("query", "--file", str(question), "--format", "json")
    assert json.loads(now[1]) == [{"n": 9}]
    then = noetl("query", "--file", str(question), "--format", "json", "--as-of", mark)
    assert json.loads(then[1]) == [{"n": 6}]
    assert f"as of {mark}" in then[2]

    code, output, errors = noetl("query", "SELECT * FROM range(5)", "--limit", "2", "--format", "csv")
    assert (code, output) == (0, "range\n0\n1\n")
    assert "there are more, cut at --limit 2" in errors
    file = home / "answer.arrow"
    assert (
        noetl("query", "SELECT day FROM shop_orders ORDER BY day", "--format", "arrow", "--output", str(file))[1] == ""
    )
    assert pa.ipc.open_stream(file.read_bytes()).read_all().num_rows == 9


def test_what_may_not_be_asked_is_told_in_one_line_and_recorded(noetl: Noetl, home: Path) -> None:
    for sql, said in (
        ("SELECT *\nFROM 'x.parquet'", "error: line 2, column 6: there is no published dataset 'x.parquet'"),
        ("SELECT getenv('HOME')", "error: line 1, column 8: the function getenv may not be called"),
        ("DROP TABLE x", "error: line 1, column 1: this is no SELECT"),
    ):
        code, output, errors = noetl("query", sql)
        assert (code, output, errors.splitlines()[0]) == (2, "", said)
        assert errors.splitlines()[1].startswith("hint: ")
    code, _, errors = noetl("query", "SELECT count(*) FROM range(1000000) a, range(1000000) b", "--timeout", "0.3")
    assert (code, errors.splitlines()[0]) == (2, "error: the query took longer than 0.3 seconds and was stopped")
    for arguments in (["--file", "none.sql"], ["SELECT 1", "--file", "x.sql"], ["--limit", "3"]):
        assert noetl("query", *arguments)[0] == 2
    logged = json.loads(noetl("query", "log", "--json")[1])
    assert [(one["outcome"], one["code"]) for one in logged] == [
        ("failed", "query_timed_out"), ("refused", "statement"), ("refused", "function"), ("refused", "relation"),
    ]  # fmt: skip
    assert {one["asked_by"] for one in logged} == {"cli"}
    table = noetl("query", "log", "--outcome", "failed")[1]
    assert "failed (query_timed_out)" in table
    assert len(table.splitlines()) == 2


def test_readers_of_a_dataset_are_granted_and_shown(noetl: Noetl, home: Path) -> None:
    write_shop(home)
    assert noetl("dag", "run", "dag.yaml")[0] == 0
    assert "read by    everybody in the organization" in noetl("datasets", "show", "shop_orders")[1]
    code, _, errors = noetl("datasets", "grant", "shop_orders", "analysts")
    assert (code, "there is no role analysts" in errors) == (1, True)
    assert noetl("datasets", "revoke", "shop_orders")[0] == 2
    assert noetl("datasets", "revoke", "shop_orders", "analysts")[0] == 1
    assert json.loads(noetl("datasets", "revoke", "shop_orders", "--all", "--json")[1])["readers"] == []
    assert json.loads(noetl("datasets", "show", "shop_orders", "--json")[1])["readers"] == []
