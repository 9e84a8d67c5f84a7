"""Alerts over the API: rules are applied, alerts and messages read, and what was given up sent again."""

from __future__ import annotations

import pytest
from tests.integration.api.serving import HOME, Server

from noetl.engine.dispatch.drafts import Drafting
from noetl.language.alert.rule import Route
from noetl.services.alerts.alerts import connect_alerts
from noetl.services.alerts.deliveries import Deliveries
from noetl.services.alerts.findings import Found, Rules
from noetl.services.alerts.judgement import Judgement
from noetl.testing.samples.drafts import PRODUCER

pytestmark = pytest.mark.service

RULES = """
kind: Alerts
name: ops
channels: {hook: {kind: webhook, url: "https://example.org/hook", credential: hook}}
rules: [{name: failed, on: run_failed, channels: [hook]}]
"""


async def raised(server: Server, *subjects: str) -> Deliveries:
    services = server.services
    drafting = Drafting(lambda count: [services.mint() for _ in range(count)], PRODUCER)
    own = connect_alerts(services.database, services.ledger, drafting, services.mint)
    for subject in subjects:
        found = Found(subject=subject, title=f"{subject} failed")
        judgement = Judgement(
            rules=Rules("rules/ops", "failed"), evaluation="e", found=[found], resolves=False,
            route=Route(channels=("hook",)),
        )  # fmt: skip
        await own.judging.judge(HOME, judgement, {"hook": "webhook"})
    return own.deliveries


async def test_rules_are_applied_listed_and_removed(server: Server) -> None:
    applied = await server.call("POST", "/api/alerts/rules", {"text": RULES}, headers=server.local, status=200)
    assert applied == {"name": "ops", "changed": True, "rules": 1, "channels": 1}
    again = await server.call("POST", "/api/alerts/rules", {"text": RULES}, headers=server.local, status=200)
    assert again["changed"] is False
    (one,) = (await server.call("GET", "/api/alerts/rules", status=200))["applied"]
    assert one["channels"]["hook"]["credential"] == "hook"
    await server.call("DELETE", "/api/alerts/rules/ops", headers=server.local, status=204)
    assert (await server.call("GET", "/api/alerts/rules", status=200))["applied"] == []
    await server.call("DELETE", "/api/alerts/rules/ops", headers=server.local, status=404)


async def test_a_file_that_is_not_sound_is_refused_with_its_places(server: Server) -> None:
    refused = await server.call(
        "POST", "/api/alerts/rules", {"text": "kind: Alerts\nname: A"}, headers=server.local, status=400
    )
    assert "line 2, column 7" in str(refused)


async def test_alerts_and_messages_are_read_page_by_page(server: Server) -> None:
    own = await raised(server, "a", "b", "c")
    first = await server.call("GET", "/api/alerts?limit=2", status=200)
    assert [one["title"] for one in first["alerts"]] == ["c failed", "b failed"]
    rest = await server.call("GET", f"/api/alerts?limit=2&cursor={first['next_cursor']}", status=200)
    assert ([one["title"] for one in rest["alerts"]], rest["next_cursor"]) == (["a failed"], None)
    one = await server.call("GET", f"/api/alerts/{first['alerts'][0]['alert_id']}", status=200)
    assert [told["status"] for told in one["deliveries"]] == ["Pending"]
    page = await server.call("GET", "/api/alerts/deliveries?status=Pending", status=200)
    assert len(page["deliveries"]) == 3
    (lease, *_) = await own.lease(HOME, "w", 60.0, 1)
    await own.failed(HOME, lease, "no", kind="x", permanent=True, delay_seconds=0)
    place = f"/api/alerts/deliveries/{lease.row.delivery_id}"
    assert (await server.call("GET", place, status=200))["error"] == "no"
    assert (await server.call("POST", f"{place}/retry", status=200))["status"] == "Pending"
    await server.call("POST", f"{place}/retry", status=400)
    await server.call("GET", "/api/alerts/nonsense", status=404)


async def test_a_channel_is_tried_out(server: Server) -> None:
    await server.call("POST", "/api/alerts/channels/hook/test", status=404)
    await server.call("POST", "/api/alerts/rules", {"text": RULES}, headers=server.local, status=200)
    made = await server.call("POST", "/api/alerts/channels/hook/test", status=202)
    assert (made["occasion"], made["channel_kind"], made["status"]) == ("test", "webhook", "Pending")


@pytest.mark.parametrize(
    ("method", "path", "may"),
    [
        ("GET", "/api/alerts", {"reader", "writer", "admin"}),
        ("GET", "/api/alerts/rules", {"reader", "writer", "admin"}),
        ("POST", "/api/alerts/rules", {"admin"}),
        ("DELETE", "/api/alerts/rules/ops", {"admin"}),
        ("POST", "/api/alerts/channels/hook/test", {"writer", "admin"}),
    ],
)
async def test_roles_decide_who_may_do_what(
    method: str, path: str, may: set[str], guarded: Server, bearers: dict[str, dict[str, str]]
) -> None:
    """INV-46."""
    for role, headers in bearers.items():
        body = {"text": RULES} if method == "POST" and path.endswith("rules") else None
        async with guarded.session.request(method, guarded.url + path, json=body, headers=headers) as answer:
            assert (answer.status != 403) == (role in may), role
