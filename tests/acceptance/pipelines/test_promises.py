"""What a job promises about its rows, columns and values: a commit that breaks it is not seen by anybody."""

from __future__ import annotations

import pytest
from tests.acceptance.pipelines.shop import order, shop, total

from noetl.errors import InputError
from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = pytest.mark.service

POSITIVE = "checks: [{kind: range, columns: [amount], min: 0%s}]"
APPENDED = ", unique_key: [amount]"


async def test_other_columns_are_refused_with_what_differs(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop(orders=APPENDED))
    pipelines.give("orders", order(1, 2, colour="red"))
    end = await pipelines.emit("shop", "orders")
    assert end.status == "failed"
    assert "colour" in (end.error or "")
    assert "evolve" in (end.error or "")
    task = (await pipelines.tasks("orders"))[-1]
    assert (task.status, task.attempt) == ("Failed", 1), "it would not help to try again"
    assert await pipelines.rows("totals") == total(1, 1)


async def test_columns_that_may_come_do_and_older_rows_have_none(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop(orders=f"{APPENDED}, schema: {{evolve: add_columns}}"))
    pipelines.give("orders", order(1, 2, colour="red"))
    assert (await pipelines.emit("shop", "orders")).status == "completed"
    assert await pipelines.rows("shop.orders.0") == [order(1, 1, colour=None), order(1, 2, colour="red")]
    told = await pipelines.fetch("SELECT meta ->> 'change' FROM noetl.event WHERE event_type = 'dataset.schema_set'")
    assert [row[0] for row in told].count("evolved") == 1


async def test_a_broken_check_keeps_the_rows_out_and_the_version_from_serving(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, -1), order(2, 1))
    broken = await pipelines.begin(shop(clean=POSITIVE % ""))
    end = await pipelines.finished(broken.execution_id)
    assert end.status == "failed"
    assert "range(amount)" in (end.error or "")
    with pytest.raises(InputError, match=r"range\(amount\)"):
        await pipelines.activate(broken)


async def test_a_check_that_breaks_later_leaves_what_stands(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, 1))
    await pipelines.deploy(shop(clean=POSITIVE % ""))
    pipelines.give("orders", order(1, -1))
    assert (await pipelines.emit("shop", "orders")).status == "failed"
    assert await pipelines.rows("totals") == total(1, 1)


async def test_a_check_that_only_warns_is_told_and_stops_nothing(pipelines: TestedPipelines) -> None:
    pipelines.give("orders", order(1, -1))
    await pipelines.deploy(shop(clean=POSITIVE % ", severity: warn"))
    assert await pipelines.rows("totals") == total(-1, 1)
    (task,) = await pipelines.tasks("clean")
    (attempt,) = await pipelines.engine.by_hand.history(pipelines.scope, task.task_id)
    (check,) = attempt.told["checks"]
    assert (check["label"], check["passed"], check["violations"]) == ("range(amount)", False, 1)
