"""Messages about alerts: each channel gets each of them once, tried again until it is taken or given up."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.integration.services.alerts.conftest import Desk, hook_rules
from tests.integration.services.alerts.receiving import Letters, Receiver, posting, receiving

from noetl.engine.dispatch.polling import Backoff
from noetl.errors import InputError, LeaseLost
from noetl.language.alert.document import AlertsInvalid, parse_alerts
from noetl.model.stream import Scope
from noetl.runtime.assembly.alerts import CHANNELS
from noetl.services.alerts.channels.mail import MailChannel
from noetl.services.alerts.channels.port import Message, SendFailed, timeout_of
from noetl.services.alerts.deliveries import Deliveries, Lease
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

pytestmark = pytest.mark.service

CANARY = "canary-5f1e0c7d"
BROKEN = "workflow: [{step: start, tool: {kind: python, code: \"raise ValueError('no data')\"}}]"


async def failed_run(desk: Desk, playbooks: Playbooks, text: str) -> None:
    """Apply rules, let a run fail and evaluate them."""
    await desk.apply(text)
    await playbooks.run(playbook(BROKEN, "etl/nightly"))
    await desk.evaluate()


async def test_a_webhook_gets_an_alert_once_and_can_tell_who_sent_it(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-80."""
    await desk.credential("hook_key", key=CANARY)
    await failed_run(desk, playbooks, hook_rules(receiver, channel=", credential: hook_key, headers: {X-Team: ops}"))
    assert [await desk.sender().drain() for _ in range(3)] == [1, 0, 0]
    ((headers, body),) = receiver.got
    (row,) = await desk.deliveries()
    said = orjson.loads(body)
    assert (row.status, row.attempt, headers["Idempotency-Key"]) == ("Delivered", 1, row.delivery_id)
    assert (said["delivery_id"], said["alert"]["title"]) == (row.delivery_id, "etl/nightly failed")
    assert (said["alert"]["state"], said["organization_id"], headers["X-Team"]) == ("raised", "default", "ops")
    at, given = (part.partition("=")[2] for part in headers["NoETL-Signature"].split(","))
    assert given == hmac.new(CANARY.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


async def test_slack_gets_text_in_which_nothing_is_a_link(desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    await desk.credential("slack", key=f"{receiver.url}/{CANARY}")
    await failed_run(
        desk,
        playbooks,
        "kind: Alerts\nname: ops\n"
        "channels: {team: {kind: slack, credential: slack, allow_private: true}}\n"
        'rules: [{name: failed, on: run_failed, title: "<!channel> & all", channels: [team]}]',
    )
    await desk.sender().drain()
    ((_, body),) = receiver.got
    said = orjson.loads(body)
    assert said["text"] == "[error] &lt;!channel&gt; &amp; all"
    assert "no data" in said["attachments"][0]["text"]


async def test_mail_goes_out_over_tls_to_who_is_named(desk: Desk, playbooks: Playbooks, tmp_path: Path) -> None:
    """INV-80."""
    letters = Letters(CANARY)
    await desk.credential("post", "basic", username="ann", password=CANARY)
    async with posting(letters, tmp_path / "tls") as (port, trust):
        await failed_run(
            desk,
            playbooks,
            f"""
            kind: Alerts
            name: ops
            channels:
              post:
                kind: mail
                host: localhost
                port: {port}
                from: noetl@example.org
                to: [ann@example.org, bob@example.org]
                credential: post
                allow_private: true
            rules: [{{name: failed, on: run_failed, channels: [post]}}]
            """,
        )
        sender = desk.sender({**CHANNELS, "mail": MailChannel(lambda: trust)})
        assert [await sender.drain() for _ in range(2)] == [1, 0]
    ((letter, recipients, safe),) = letters.got
    (row,) = await desk.deliveries()
    assert (row.status, safe, recipients) == ("Delivered", True, ["ann@example.org", "bob@example.org"])
    assert letter["Subject"] == "[error] etl/nightly failed"
    assert letter["Message-ID"] == f"<{row.delivery_id}@noetl>"
    assert "no data" in str(letter.get_payload())


async def test_a_mail_server_nobody_can_trust_gets_no_password(
    desk: Desk, playbooks: Playbooks, tmp_path: Path
) -> None:
    """INV-45."""
    letters = Letters(CANARY)
    await desk.credential("post", "basic", username="ann", password=CANARY)
    address = "from: noetl@example.org, to: ann@example.org, credential: post, allow_private: true"
    async with posting(letters, tmp_path / "tls") as (port, _):
        await failed_run(
            desk,
            playbooks,
            "kind: Alerts\nname: ops\nchannels:\n"
            f"  untrusted: {{kind: mail, host: localhost, port: {port}, {address}}}\n"
            f"  open: {{kind: mail, host: localhost, port: {port}, security: none, {address}}}\n"
            "rules: [{name: failed, on: run_failed, channels: [untrusted, open]}]",
        )
        await desk.sender().drain()
    found = {row.channel: (row.status, row.error) for row in await desk.deliveries()}
    assert found["untrusted"] == ("Pending", "localhost cannot be reached: SSLCertVerificationError")
    assert found["open"] == ("Dead", "no password is sent to localhost in the clear")
    assert letters.got == []


async def test_what_fails_waits_longer_each_time_and_is_taken_in_the_end(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-80."""
    await failed_run(desk, playbooks, hook_rules(receiver))
    receiver.answers = [web.Response(status=500), web.Response(status=429, headers={"Retry-After": "600"})]
    await desk.sender(backoff=Backoff(0.0, 0.0)).drain()
    (row,) = await desk.deliveries()
    assert (row.status, row.attempt, row.error) == ("Pending", 1, "127.0.0.1 answered 500")
    await desk.sender().drain()
    (row,) = await desk.deliveries()
    assert row.available_at is not None
    assert 590 < (row.available_at - row.created_at).total_seconds() < 700
    assert await desk.sender().drain() == 0
    assert len(set(receiver.keys)) == 1
    assert [Backoff(5.0, 1800.0).seconds(number) <= 2700 for number in (1, 12)] == [True, True]


async def test_a_message_is_given_up_after_twelve_attempts_is_visible_and_sent_when_asked_for(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-80."""
    await failed_run(desk, playbooks, hook_rules(receiver))
    receiver.answers = [web.Response(status=503) for _ in range(12)]
    sender = desk.sender()
    while await sender.drain():
        pass
    (row,) = await desk.deliveries()
    assert (row.status, row.attempt, row.error) == ("Dead", 12, "127.0.0.1 answered 503")
    assert len(receiver.got) == 12
    armed = await desk.parts.deliveries.rearm(desk.scope, row.delivery_id, by="tests")
    assert (armed.status, armed.max_attempts) == ("Pending", 24)
    await sender.drain()
    (row,) = await desk.deliveries()
    assert (row.status, row.attempt) == ("Delivered", 13)
    assert len(set(receiver.keys)) == 1
    with pytest.raises(InputError, match="only one that was given up"):
        await desk.parts.deliveries.rearm(desk.scope, row.delivery_id, by="tests")


async def test_two_senders_send_each_message_once(desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    """INV-80."""
    channels = "".join(f'  c{n}: {{kind: webhook, url: "{receiver.url}", allow_private: true}}\n' for n in range(12))
    names = ", ".join(f"c{n}" for n in range(12))
    rules = f"rules: [{{name: failed, on: run_failed, channels: [{names}]}}]"
    await failed_run(desk, playbooks, f"kind: Alerts\nname: ops\nchannels:\n{channels}{rules}")

    async def all_of_it() -> None:
        sender = desk.sender()
        while await sender.drain():
            pass

    await asyncio.gather(*(all_of_it() for _ in range(4)))
    rows = await desk.deliveries()
    assert {row.status for row in rows} == {"Delivered"}
    assert sorted(receiver.keys) == sorted(row.delivery_id for row in rows)


async def test_a_sender_that_lost_its_lease_changes_nothing(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-80, INV-27."""
    await failed_run(desk, playbooks, hook_rules(receiver))
    own: Deliveries = desk.parts.deliveries
    (lost,) = await own.lease(desk.scope, "first", 0.0, 10)
    (held,) = await own.lease(desk.scope, "second", 60.0, 10)
    assert (lost.attempt, held.attempt) == (1, 2)
    assert await own.heartbeat([lost.sending(desk.scope)]) == [lost.sending(desk.scope)]
    with pytest.raises(LeaseLost):
        await own.delivered(desk.scope, lost)
    assert await own.heartbeat([held.sending(desk.scope)]) == []
    await own.delivered(desk.scope, held)
    (row,) = await desk.deliveries()
    assert (row.status, row.attempt, row.worker) == ("Delivered", 2, "second")


async def test_losing_the_lease_stops_the_sending(desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    class Endless:
        async def send(self, *_: Any) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

    await failed_run(desk, playbooks, hook_rules(receiver))
    sender = desk.sender({"webhook": Endless()})
    sender._lease_seconds = 0.3
    sending = asyncio.create_task(sender.drain())
    await begun.wait()
    (row,) = await desk.deliveries()
    own = desk.parts.deliveries
    # Somebody else takes it, as if the lease had run out.
    lease = Lease(row=row, attempt=1, token=str(row.lease_token), seconds=1.0)
    await own.failed(desk.scope, lease, "taken", kind="test", permanent=False, delay_seconds=60)
    async with asyncio.timeout(20):
        await stopped.wait()
        await sending


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(status: int, desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    """INV-80."""
    async with receiving() as hidden:
        receiver.answers = [web.Response(status=status, headers={"Location": hidden.url})]
        await failed_run(desk, playbooks, hook_rules(receiver))
        await desk.sender().drain()
        (row,) = await desk.deliveries()
        assert (row.status, row.error) == ("Dead", f"127.0.0.1 redirects ({status}), which is not followed")
        assert hidden.got == []


async def test_a_channel_that_may_not_reach_this_machine_does_not(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    """INV-80."""
    await failed_run(desk, playbooks, hook_rules(receiver).replace("allow_private: true", "allow_private: false"))
    await desk.sender().drain()
    (row,) = await desk.deliveries()
    assert row.status == "Dead"
    assert "is on this machine or in a private network" in str(row.error)
    assert receiver.got == []


async def test_the_settings_of_a_server_may_forbid_private_networks_for_all(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    await failed_run(desk, playbooks, hook_rules(receiver))
    sender = desk.sender()
    sender._allow_private = False
    await sender.drain()
    assert [row.status for row in await desk.deliveries()] == ["Dead"]
    assert receiver.got == []


async def test_a_channel_that_is_gone_is_named_and_comes_back(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    await failed_run(desk, playbooks, hook_rules(receiver))
    await desk.apply("kind: Alerts\nname: ops\nrules: []")
    await desk.sender().drain()
    (row,) = await desk.deliveries()
    assert (row.status, str(row.error).partition(":")[0]) == ("Pending", "there is no channel hook")
    await desk.apply(hook_rules(receiver))
    await desk.sender().drain()
    assert [row.status for row in await desk.deliveries()] == ["Delivered"]


async def test_only_what_is_bad_enough_is_told_and_the_end_of_it_if_asked_for(
    desk: Desk, playbooks: Playbooks, receiver: Receiver
) -> None:
    await desk.apply(
        f"""
        kind: Alerts
        name: ops
        channels: {{hook: {{kind: webhook, url: "{receiver.url}", allow_private: true}}}}
        rules:
          - {{name: quiet, on: run_failed, severity: warning, min_severity: error, channels: [hook]}}
          - {{name: loud, on: run_failed, severity: critical, min_severity: error, channels: [hook], send_resolved: true}}
        """
    )
    await playbooks.run(playbook(BROKEN))
    await desk.evaluate()
    await playbooks.run(playbook("workflow: [{step: start, tool: {kind: noop}}]"))
    await desk.evaluate()
    await desk.sender().drain()
    said = [orjson.loads(body)["alert"] for _, body in receiver.got]
    assert sorted((one["rule"], one["state"]) for one in said) == [("loud", "raised"), ("loud", "resolved")]
    assert len(set(receiver.keys)) == 2


async def test_what_is_too_old_is_not_sent(desk: Desk, playbooks: Playbooks, receiver: Receiver) -> None:
    await failed_run(desk, playbooks, hook_rules(receiver, more=", max_delivery_age: 1ms"))
    await desk.sender().drain()
    (row,) = await desk.deliveries()
    assert (row.status, row.error) == ("Dead", "it was too old to be sent")
    assert receiver.got == []


async def test_secrets_of_channels_stand_in_no_event_and_no_error(
    desk: Desk, playbooks: Playbooks, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-45."""

    class Leaky:
        async def send(self, message: Any, declared: Any, secret: Any) -> None:
            raise SendFailed(f"the server at {secret['key']} refused {secret['key'].upper()}")

    class Crashing:
        async def send(self, message: Any, declared: Any, secret: Any) -> None:
            raise ValueError(f"bad url {secret['key']}")

    await desk.credential("slack", key=f"http://127.0.0.1:1/{CANARY}")
    await failed_run(
        desk,
        playbooks,
        "kind: Alerts\nname: ops\nchannels:\n"
        "  real: {kind: slack, credential: slack, allow_private: true}\n"
        "  none: {kind: slack, credential: nothing, allow_private: true}\n"
        "rules: [{name: failed, on: run_failed, channels: [real, none]}]",
    )
    for channel in (CHANNELS["slack"], Leaky(), Crashing()):
        await desk.sender({"slack": channel}).drain()
    rows = {row.channel: row for row in await desk.deliveries()}
    assert rows["real"].error == "ValueError: bad url ***"
    assert "the channel's credential cannot be had" in str(rows["none"].error)
    assert CANARY not in await desk.told()
    assert CANARY not in caplog.text


async def test_a_receiver_that_hangs_keeps_no_other_organization_waiting(desk: Desk, playbooks: Playbooks) -> None:
    """INV-80: each organization is sent for on its own, and later messages of others go out meanwhile."""
    hanging, go_on = asyncio.Event(), asyncio.Event()
    got: asyncio.Queue[str] = asyncio.Queue()

    class Hanging:
        async def send(self, message: Message, declared: Any, secret: Any) -> None:
            if message.tenant_id == "default":
                hanging.set()
                await go_on.wait()
            await got.put(message.tenant_id)

    other = Desk(playbooks, Scope("other", "other"))
    rules = "kind: Alerts\nname: ops\nchannels: {hook: {kind: webhook, url: 'https://example.org/', timeout: 60s}}\nrules: []"
    for one in (desk, other):
        await one.apply(rules)
    sender = desk.sender({"webhook": Hanging()})
    sender.start()
    try:
        await desk.parts.trying.make(desk.scope, "hook")
        async with asyncio.timeout(40):
            await hanging.wait()
            for _ in range(2):
                await desk.parts.trying.make(other.scope, "hook")
                assert await got.get() == "other"
    finally:
        go_on.set()
        await sender.stop()


async def test_an_attempt_ends_with_its_time_whatever_its_channel_does(desk: Desk, playbooks: Playbooks) -> None:
    """INV-80."""

    class Deaf:
        async def send(self, message: Message, declared: Any, secret: Any) -> None:
            await asyncio.Event().wait()

    text = "kind: Alerts\nname: ops\nchannels: {ops: {kind: slack, url: 'https://example.org/', timeout: 100ms}}\n"
    await failed_run(desk, playbooks, text + "rules: [{name: failed, on: run_failed, channels: [ops]}]")
    async with asyncio.timeout(60):
        await desk.sender({"slack": Deaf()}).drain()
    (row,) = await desk.deliveries()
    assert "it took longer than 0.1 seconds" in str(row.error)


@pytest.mark.parametrize("timeout", ["61s", "2m", "1h", "9999d", "100000ms"])
def test_an_attempt_takes_a_minute_at_most(timeout: str) -> None:
    """INV-80: also where a channel was applied before that was so."""
    text = "kind: Alerts\nname: ops\nchannels: {{ops: {{kind: slack, url: 'https://a/', timeout: {}}}}}\nrules: []"
    with pytest.raises(AlertsInvalid, match="at most a minute"):
        parse_alerts(text.format(timeout))
    assert timeout_of({"timeout": timeout}) == 60.0
    assert parse_alerts(text.format("60s")).channels["ops"]["timeout"] == "60s"
