"""Jobs that watch data: a condition over new rows becomes alerts, rows about them, and messages to channels."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from tests.integration.services.alerts.conftest import Desk
from tests.integration.services.alerts.receiving import Receiver

from noetl.language.dag.parse import problems_of
from noetl.runtime.assembly.alerts import CHANNELS, sender_of
from noetl.services.alerts.findings import Found, Rules
from noetl.services.alerts.judgement import Judgement
from noetl.testing.engines.pipelines import TestedPipelines

pytestmark = pytest.mark.service

SHOP = """
name: shop
jobs:
  - {name: orders, operator: made, runtime: dispatcher, partition_by: [day]}
  - name: watch
    operator: alert_evaluate
    inputs: [orders]
    config:
      sql: |
        SELECT day AS key, 'critical' AS severity, 'no sales on ' || day AS title, 'total ' || sum(amount) AS message
        FROM orders GROUP BY day HAVING sum(amount) <= 0
  - name: tell
    operator: alert_route
    inputs: [watch]
    config: {channels: [hook], min_severity: error}
publish: {alert_events: watch}
"""


def channel(receiver: Receiver) -> str:
    return (
        "kind: Alerts\nname: channels\n"
        f'channels: {{hook: {{kind: webhook, url: "{receiver.url}", allow_private: true}}}}'
    )


async def test_a_condition_over_new_rows_reaches_a_channel_once_and_is_over_when_the_data_change(
    watched: TestedPipelines, desk: Desk, receiver: Receiver
) -> None:
    """INV-79, INV-80."""
    await desk.apply(channel(receiver))
    watched.give("orders", {"day": "1", "amount": 5}, {"day": "2", "amount": 0})
    await watched.deploy(SHOP)
    (alert,) = await desk.alerts()
    assert (alert.title, alert.severity, alert.message) == ("no sales on 2", "critical", "total 0")
    assert (alert.owner, alert.rule, alert.subject, alert.status) == ("job/shop", "watch", "2", "open")
    (row,) = await watched.rows("alert_events")
    assert (row["key"], row["rule"], row["event_id"]) == ("job/shop:watch:2", "watch", str(alert.raised_event_id))
    assert [await desk.sender().drain() for _ in range(2)] == [1, 0]
    assert orjson.loads(receiver.got[0][1])["alert"]["title"] == "no sales on 2"

    await watched.emit("shop", "orders")
    assert [one.occurrences for one in await desk.alerts()] == [1]
    watched.give("orders", {"day": "1", "amount": 5}, {"day": "2", "amount": 7})
    await watched.emit("shop", "orders")
    (alert,) = await desk.alerts()
    assert alert.status == "resolved"
    assert await watched.rows("alert_events") == []

    watched.give("orders", {"day": "1", "amount": 5}, {"day": "2", "amount": -1})
    await watched.emit("shop", "orders")
    (alert,) = await desk.alerts()
    assert (alert.status, alert.occurrences) == ("open", 2)
    await desk.sender().drain()
    assert len(set(receiver.keys)) == 2


async def test_rows_of_updates_are_looked_at_once_and_each_is_an_alert_of_its_own(
    watched: TestedPipelines, desk: Desk
) -> None:
    dag = """
    name: shop
    jobs:
      - {name: orders, operator: made, runtime: dispatcher, unique_key: [id]}
      - name: fraud
        operator: alert_evaluate
        inputs: [orders]
        execution_strategy: PerUpdate
        unique_key: [event_id]
        config: {sql: "SELECT id, amount FROM orders WHERE amount > 100", severity: warning, resolve: never}
    """
    watched.give("orders", {"id": 1, "amount": 500}, {"id": 2, "amount": 5})
    await watched.deploy(dag)
    watched.give("orders", {"id": 3, "amount": 900}, {"id": 1, "amount": 500})
    await watched.emit("shop", "orders")
    found = [(one.message, one.severity, one.status) for one in await desk.alerts()]
    assert found == [("id=1, amount=500", "warning", "open"), ("id=3, amount=900", "warning", "open")]
    assert len(await watched.rows("shop.fraud.0")) == 2


async def test_a_failing_check_is_an_alert_until_it_holds(watched: TestedPipelines, desk: Desk) -> None:
    """INV-79."""
    dag = """
    name: shop
    jobs:
      - name: orders
        operator: made
        runtime: dispatcher
        max_attempts: 1
        checks:
          - {kind: not_null, columns: [city], severity: warn}
          - {kind: range, columns: [amount], min: 0}
    """
    await desk.apply(
        "kind: Alerts\nname: ops\nrules: [{name: checks, on: check_failed, dag: shop},"
        " {name: other, on: check_failed, dag: farm}]"
    )
    watched.give("orders", {"city": None, "amount": 1})
    await watched.deploy(dag)
    assert [(await desk.evaluate()).raised for _ in range(2)] == [1, 0]
    watched.give("orders", {"city": None, "amount": -1})
    assert (await watched.emit("shop", "orders")).status == "failed"
    assert (await desk.evaluate()).raised == 1
    titles = {one.title: one.status for one in await desk.alerts()}
    assert titles == {
        "check not_null(city) of shop.orders is broken": "open",
        "check range(amount) of shop.orders is broken": "open",
    }
    watched.give("orders", {"city": "Wien", "amount": 1})
    await watched.emit("shop", "orders")
    assert (await desk.evaluate()).resolved == 2


async def test_a_job_may_look_at_the_ledger(watched: TestedPipelines, desk: Desk) -> None:
    dag = """
    name: ops
    jobs:
      - name: failed_runs
        operator: alert_evaluate
        update_strategy: append
        unique_key: [event_id]
        config: {on: run_failed, dag: shop, severity: critical}
    """
    shop = "name: shop\njobs: [{name: orders, operator: made, runtime: dispatcher, max_attempts: 1}]"
    watched.give("orders", {"id": 1})
    await watched.deploy(shop)
    await watched.deploy(dag)
    assert await desk.alerts() == []
    watched.made.given.clear()
    assert (await watched.emit("shop", "orders")).status == "failed"
    await desk.projected()
    for _ in range(2):
        await watched.emit("ops", "failed_runs")
    (alert,) = await desk.alerts()
    assert (alert.owner, alert.rule, alert.title, alert.severity) == (
        "job/ops", "failed_runs", "dag/shop failed", "critical",
    )  # fmt: skip
    (row,) = await watched.rows("ops.failed_runs.0")
    assert row["event_id"] == str(alert.raised_event_id)


async def test_a_channel_nobody_declared_fails_the_task_and_its_retry_sends(
    watched: TestedPipelines, desk: Desk, receiver: Receiver
) -> None:
    watched.give("orders", {"day": "2", "amount": 0})
    deployed = await watched.begin(SHOP)
    assert "there is no channel hook" in str((await watched.finished(deployed.execution_id)).error)
    await desk.apply(channel(receiver))
    (task,) = await watched.tasks("tell")
    await watched.engine.by_hand.retry(watched.scope, task.task_id, by="tests")
    for _ in range(100):
        if (await watched.tasks("tell"))[0].status == "Completed":
            break
        await watched.engine.work.wait(watched.engine.work.number, 0.1)
    assert len(await desk.deliveries()) == 1


async def test_alerts_that_are_too_old_are_not_routed(watched: TestedPipelines, desk: Desk, receiver: Receiver) -> None:
    await desk.apply(channel(receiver))
    watched.give("orders", {"day": "2", "amount": 0})
    await watched.deploy(SHOP.replace("min_severity: error", "max_delivery_age: 1ms"))
    assert await desk.deliveries() == []


async def test_jobs_of_equal_names_in_two_organizations_raise_alerts_of_their_own(
    watched: TestedPipelines, other_watched: TestedPipelines, desk: Desk, other_desk: Desk, receiver: Receiver
) -> None:
    """INV-22, INV-80."""
    for one, seat in ((watched, desk), (other_watched, other_desk)):
        await seat.apply(channel(receiver))
        one.give("orders", {"day": "2", "amount": 0})
        await one.deploy(SHOP)
    # The receiver is on this machine, which no other organization reaches unless an administrator lets it.
    settings = desk.runtime.settings
    allowing = settings.model_copy(update={"alerts": settings.alerts.model_copy(update={"allow_private": True})})
    assert await sender_of(replace(desk.runtime, settings=allowing), CHANNELS).drain() == 2
    assert len(set(receiver.keys)) == 2
    assert {orjson.loads(body)["organization_id"] for _, body in receiver.got} == {"default", "another"}
    assert [len(await seat.alerts()) for seat in (desk, other_desk)] == [1, 1]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY orders TO '/tmp/x'",
        "SELECT 1; SELECT 2",
        "SET threads = 8",
        "SELECT * FROM receiver",
        "SELECT 'red' AS severity FROM orders",
        "SELECT unnest(range(2000)) AS key FROM orders",
        "SELECT no_such_column FROM orders",
        "ATTACH '/tmp/x.db'",
        "INSTALL httpfs",
    ],
)
async def test_sql_that_reaches_beyond_its_inputs_fails_the_task(
    sql: str, watched: TestedPipelines, desk: Desk
) -> None:
    dag = f"""
    name: shop
    jobs:
      - {{name: orders, operator: made, runtime: dispatcher}}
      - {{name: watch, operator: alert_evaluate, inputs: [orders], config: {{sql: "{sql}"}}}}
    """
    watched.give("orders", {"day": "1"})
    deployed = await watched.begin(dag)
    end = await watched.finished(deployed.execution_id)
    assert end.status == "failed"
    assert [one.attempt for one in await watched.tasks("watch")] == [1]
    assert await desk.alerts() == []


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ("{sql: 'SELECT 1', on: run_failed}", "given_twice"),
        ("{severity: error}", "missing_field"),
        ("{on: run_late}", "missing_field"),
        ("{on: run_failed, lag_over: 5m}", "misplaced_field"),
        ("{sql: 'SELECT 1', path: x}", "misplaced_field"),
        ("{on: run_faild}", "wrong_value"),
        ("{sql: 'SELECT 1', severity: bad}", "wrong_value"),
    ],
)
def test_what_a_job_says_about_alerts_is_held_to_the_rules(config: str, code: str) -> None:
    text = f"name: d\njobs: [{{name: o, operator: noop}}, {{name: w, operator: alert_evaluate, inputs: [o], config: {config}}}]"
    assert code in {one.code for one in problems_of(text)}


def test_a_route_needs_channels_and_something_to_read() -> None:
    found = {one.code for one in problems_of("name: d\njobs: [{name: w, operator: alert_route}]")}
    assert found == {"missing_field"}


async def test_a_job_that_is_gone_leaves_no_alert_open(
    watched: TestedPipelines, desk: Desk, receiver: Receiver
) -> None:
    """INV-79."""
    await desk.apply(channel(receiver))
    watched.give("orders", {"day": "2", "amount": 0})
    await watched.deploy(SHOP)
    assert (await desk.evaluate()).resolved == 0
    await watched.deploy("name: shop\njobs: [{name: orders, operator: made, runtime: dispatcher, partition_by: [day]}]")
    assert (await desk.evaluate()).resolved == 1
    assert [one.status for one in await desk.alerts()] == ["resolved"]


async def test_what_older_data_said_changes_nothing_that_newer_data_said(desk: Desk) -> None:
    """INV-79."""
    own, full = Rules("job/shop", "watch"), [Found(subject="2", title="no sales")]
    told = []
    for seen, found in ((10, full), (9, []), (11, []), (10, full), (12, full)):
        judgement = Judgement(rules=own, evaluation=str(seen), found=found, part="day=2", seen_event_id=seen)
        judged = await desk.parts.judging.judge(desk.scope, judgement, {})
        told.append((judged.raised, judged.resolved))
    assert told == [(1, 0), (0, 0), (0, 1), (0, 0), (1, 0)]
