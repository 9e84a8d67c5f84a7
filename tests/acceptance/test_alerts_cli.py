"""`noetl alerts` from the first file of rules to a message that was given up, as a user types it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

BROKEN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: nightly, path: etl/nightly}
workflow: [{step: start, tool: {kind: python, code: "raise ValueError('no data')"}}]
"""


class Inbox(ThreadingHTTPServer):
    """A web server of its own thread that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.got: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        """Keep a message."""
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """Who is told."""
    with Inbox() as inbox:
        thread = threading.Thread(target=inbox.serve_forever, daemon=True)
        thread.start()
        yield inbox
        inbox.shutdown()
        thread.join()


@pytest.fixture
def rules(tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with one rule and one channel."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    (tmp_path / "nightly.yaml").write_text(BROKEN)
    file = tmp_path / "alerts.yaml"
    file.write_text(
        "kind: Alerts\nname: operations\n"
        f'channels: {{team: {{kind: webhook, url: "{inbox.url}", allow_private: true}}}}\n'
        "rules: [{name: nightly_failed, on: run_failed, path: etl/nightly, severity: critical, channels: [team]}]\n"
    )
    return file


def test_a_failed_run_is_told_once_and_listed(noetl: Noetl, rules: Path, inbox: Inbox) -> None:
    assert noetl("alerts", "list")[1] == "There is no such alert.\n"
    assert noetl("alerts", "apply", str(rules))[:2] == (0, "operations: 1 rule and 1 channel are in use\n")
    assert noetl("alerts", "apply", str(rules))[1] == "operations: 1 rule and 1 channel were in use already\n"
    shown = noetl("alerts", "rules")[1]
    assert "nightly_failed" in shown
    assert inbox.url in shown
    assert noetl("run", "nightly.yaml")[0] == 1
    assert noetl("alerts", "evaluate")[:2] == (0, "1 rule evaluated: 1 raised, 0 resolved\n")
    assert noetl("alerts", "evaluate")[1] == "1 rule evaluated: 0 raised, 0 resolved\n"
    assert [one["alert"]["title"] for one in inbox.got] == ["etl/nightly failed"]
    (alert,) = json.loads(noetl("alerts", "list", "--status", "open", "--json")[1])
    assert (alert["severity"], alert["occurrences"], type(alert["about_execution_id"])) == ("critical", 1, str)
    told = noetl("alerts", "show", "last")[1]
    assert "Delivered" in told
    assert "no data" in told
    one = json.loads(noetl("alerts", "show", alert["alert_id"][:6], "--json")[1])
    assert [delivery["status"] for delivery in one["deliveries"]] == ["Delivered"]
    assert "lease_token" not in str(one)
    assert noetl("alerts", "show", "zzz")[0] == 1
    assert noetl("alerts", "remove", "operations")[0] == 0
    assert noetl("alerts", "evaluate")[1] == "0 rules evaluated: 0 raised, 1 resolved\n"
    assert noetl("alerts", "remove", "operations")[0] == 1


def test_a_channel_is_tried_out_and_what_was_given_up_is_sent_when_asked_for(
    noetl: Noetl, rules: Path, inbox: Inbox
) -> None:
    code, _, errors = noetl("alerts", "test", "team")
    assert (code, "there is no channel team" in errors) == (1, True)
    noetl("alerts", "apply", str(rules))
    code, output, _ = noetl("alerts", "test", "team")
    assert (code, output.startswith("the channel team took the message ")) == (0, True)
    assert inbox.got[0]["alert"]["title"] == "test of the channel team"
    inbox.status = 400
    code, _, errors = noetl("alerts", "test", "team")
    assert (code, errors) == (1, "error: the channel team did not take the message: 127.0.0.1 answered 400\n")
    (dead,) = json.loads(noetl("alerts", "deliveries", "--status", "dead", "--json")[1])
    assert noetl("alerts", "deliveries", "retry", dead["delivery_id"][:8])[0] == 1
    inbox.status = 200
    code, output, _ = noetl("alerts", "deliveries", "retry", dead["delivery_id"][:8])
    assert (code, output) == (0, f"the channel team took the message {dead['delivery_id']}\n")
    assert noetl("alerts", "deliveries", "retry", dead["delivery_id"][:8])[0] == 1
    assert noetl("alerts", "deliveries")[1].count("Delivered") == 2
    assert {one["delivery_id"] for one in inbox.got[1:]} == {dead["delivery_id"]}


def test_what_is_wrong_in_a_file_is_told_with_its_place(noetl: Noetl, rules: Path) -> None:
    rules.write_text("kind: Alerts\nname: ops\nrules:\n  - {name: a, on: run_faild}\n  - {name: b, on: lag}\n")
    code, _, errors = noetl("alerts", "apply", "alerts.yaml")
    assert code == 2
    assert "alerts.yaml:4:19: error wrong_value: rules[a].on must be" in errors
    assert "alerts.yaml:5:5: error missing_field: the rule b on lag needs lag_over" in errors
    assert noetl("alerts", "apply", "nowhere.yaml")[0] == 2
    assert noetl("alerts", "rules")[1] == "No rules are applied; `noetl alerts apply FILE` does it.\n"
