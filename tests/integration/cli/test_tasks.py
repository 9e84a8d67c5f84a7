"""`noetl tasks` as a user meets it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
from tests.integration.cli.shop import write_shop

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


@pytest.fixture
def shop(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Noetl:
    """The `noetl` command beside a DAG that fails as long as there is no file `open`."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    write_shop(tmp_path, f"{{days: 2, flag: {tmp_path / 'open'}}}")
    return noetl


def test_a_failed_task_is_found_looked_at_mended_and_tried_again(shop: Noetl, tmp_path: Path) -> None:
    code, output, _ = shop("dag", "run", "dag.yaml")
    assert (code, "the shop is closed" in output) == (1, True)
    (failed,) = json.loads(shop("tasks", "list", "--status", "failed", "--dag", "shop", "--json")[1])
    assert (failed["job"], failed["status"], failed["attempt"]) == ("orders", "Failed", 1)
    assert shop("tasks", "list")[1].splitlines()[1].split()[:4] == [
        failed["task_id"][:8],
        "shop.orders",
        "all",
        "failed",
    ]
    shown = shop("tasks", "show", "last")[1]
    assert shown.startswith(f"task {failed['task_id']}: Failed\njob shop.orders, partition all, ")
    assert "the shop is closed" in shown
    assert "ended as FAILED" in shop("tasks", "logs", failed["task_id"][:6])[1]
    code, _, errors = shop("tasks", "logs", "last", "--attempt", "7")
    assert (code, "there is no log of task" in errors) == (1, True)

    (tmp_path / "open").touch()
    code, output, _ = shop("tasks", "retry", failed["task_id"])
    assert (code, output) == (0, f"task {failed['task_id']} of job orders waits to be tried again\n")
    assert json.loads(shop("tasks", "list", "--job", "orders", "--json")[1])[0]["status"] == "Queued"
    assert shop("dag", "run", "dag.yaml")[0] == 0
    done = json.loads(shop("tasks", "show", failed["task_id"], "--json")[1])
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["failed", "completed"]
    assert {check["label"]: check["passed"] for check in done["attempts"][1]["checks"]} == {
        "not_null(order_id)": True,
        "row_count": False,
    }
    shown = shop("tasks", "show", "last")[1]
    assert "orders  shop_orders  day=2026-01-02  1" in shown
    assert "0       shop.copies.0  all        1        6" in shown


def test_tasks_are_cancelled_one_by_one_and_what_cannot_be_is_told(shop: Noetl, tmp_path: Path) -> None:
    assert shop("dag", "deploy", "dag.yaml")[0] == 0
    (waiting,) = json.loads(shop("tasks", "list", "--json")[1])
    code, output, errors = shop("tasks", "cancel", "nope", waiting["task_id"][:8], "--reason", "wrong shop")
    assert (code, output) == (1, f"task {waiting['task_id']} of job orders is cancelled\n")
    assert errors == "error: there is no task 'nope'\n"
    cancelled = json.loads(shop("tasks", "show", "last", "--json")[1])
    assert (cancelled["status"], cancelled["error"], cancelled["attempts"]) == ("Canceled", "wrong shop", [])
    assert "no attempt yet" in shop("tasks", "show", "last")[1]
    code, _, errors = shop("tasks", "cancel", "last")
    assert (code, "has ended already: it is Canceled" in errors) == (1, True)
    assert json.loads(shop("tasks", "list", "--execution", waiting["execution_id"], "--json")[1]) == [
        {name: value for name, value in cancelled.items() if name not in ("inputs", "attempts")}
    ]


def test_dead_rows_of_the_outbox_are_listed_and_armed_again(shop: Noetl, tmp_path: Path, owner_url: str) -> None:
    assert shop("tasks", "outbox")[1] == "No row of the outbox is dead.\n"
    (tmp_path / "open").touch()
    assert shop("dag", "run", "dag.yaml")[0] == 0

    async def bury() -> None:
        connection = await asyncpg.connect(owner_url.replace("noetl_owner", "noetl_admin"))
        await connection.execute(
            "UPDATE noetl.outbox SET status = 'Dead', attempts = 20, last_error = 'nobody home'"
            " WHERE kind = 'route_event'"
        )
        await connection.close()

    asyncio.run(bury())
    listed = json.loads(shop("tasks", "outbox", "--json")[1])["dead"]
    assert {row["last_error"] for row in listed} == {"nobody home"}
    assert listed[0]["outbox_id"][:8] in shop("tasks", "outbox")[1]
    assert shop("tasks", "outbox", "--rearm", "zz")[0] == 1
    assert shop("tasks", "outbox", "--rearm", "zz", "--rearm-all")[0] == 2
    _, output, _ = shop("tasks", "outbox", "--rearm", listed[0]["outbox_id"])
    assert output.startswith("1 row is armed again\n")
    code, output, _ = shop("tasks", "outbox", "--rearm-all")
    assert (code, output) == (0, f"{len(listed) - 1} rows are armed again\nNo row of the outbox is dead.\n")


def test_a_task_that_does_not_exist_is_an_error(shop: Noetl) -> None:
    for arguments in (["show", "last"], ["logs", "12"], ["show", " "]):
        code, output, errors = shop("tasks", *arguments)
        assert (code, output, errors.startswith("error: there is no task")) == (1, "", True)
