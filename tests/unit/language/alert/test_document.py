"""Files of alerts: what is wrong in one is told at once, with its place; what is sound is rules and channels."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from noetl.cli.check import check
from noetl.language.alert.document import AlertsInvalid, parse_alerts
from noetl.language.alert.rule import Condition, Route
from noetl.language.grammar.problems import Problem

SOUND = """
apiVersion: noetl.io/v2
kind: Alerts
name: ops
desc: what we want to know
channels:
  hook: {kind: webhook, url: "https://example.org/hook", credential: hook, timeout: 3s, headers: {X-Team: ops}}
  team: {kind: slack, credential: slack}
  post: {kind: mail, host: mail.example.org, from: a@example.org, to: b@example.org, security: tls}
rules:
  - {name: failed, on: run_failed, path: "etl/*", lookback: 2d, channels: [hook, team], min_severity: warning}
  - {name: late, on: run_late, dag: shop, later_than: 90m, channels: [post], max_delivery_age: 6h}
  - {name: due, on: run_late, path: etl/daily, finished_by: "06:30", timezone: Europe/Vienna}
  - {name: slot, on: slot_missed, schedule: nightly, later_than: 5m}
  - {name: behind, on: lag, of: outbox, lag_over: 10m, severity: critical}
  - {name: checks, on: check_failed, dag: shop, job: clean, title: the shop's data are wrong, send_resolved: true}
"""


def problems(text: str, **given: object) -> list[tuple[int, int, str, str]]:
    with pytest.raises(AlertsInvalid) as refused:
        parse_alerts(text, **given)  # type: ignore[arg-type]
    found: list[Problem] = refused.value.details["problems"]  # type: ignore[assignment]
    return [(one.line, one.column, one.code, one.message) for one in found]


def test_a_sound_file_is_rules_and_channels() -> None:
    document = parse_alerts(SOUND)
    first, late, *_ = document.parsed()
    assert first.condition == Condition(on="run_failed", path="etl/*", lookback=172_800.0)
    assert first.route == Route(channels=("hook", "team"), min_severity="warning")
    assert (late.condition.later_than, late.route.max_delivery_age, late.severity) == (5_400.0, 21_600.0, "error")
    assert sorted(document.channels) == ["hook", "post", "team"]


def test_the_check_knows_files_of_alerts(tmp_path: Path) -> None:
    sound, wrong, apart = tmp_path / "sound.yaml", tmp_path / "wrong.yaml", tmp_path / "apart.yaml"
    sound.write_text(SOUND)
    wrong.write_text(SOUND.replace("later_than: 90m", "later_then: 90m"))
    apart.write_text(SOUND.replace("channels: [post]", "channels: [elsewhere]"))
    assert CliRunner().invoke(check, [str(sound), str(sound)]).output == "2 alert files: 0 errors, 0 warnings\n"
    answer = CliRunner().invoke(check, [str(wrong)])
    assert answer.exit_code == 1
    assert (
        "error unknown_field: rules[late].later_then is not a field of the rule (did you mean later_than?)"
        in answer.output
    )
    assert answer.output.startswith(f"{wrong}:12:5: error missing_field: ")
    # A channel may come from another file, so by itself that is no error.
    answer = CliRunner().invoke(check, [str(apart)])
    assert answer.exit_code == 0
    assert "warning unknown_channel: there is no channel elsewhere" in answer.output


def test_layout_and_remarks_are_no_part_of_what_a_file_says() -> None:
    again = "# a remark\n" + SOUND.replace("desc: what we want to know", "desc: something else")
    assert parse_alerts(again).digest == parse_alerts(SOUND).digest
    assert parse_alerts(SOUND.replace("90m", "91m")).digest != parse_alerts(SOUND).digest


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("{name: a, on: run_late}", "missing_field", "the rule a on run_late needs later_than or finished_by"),
        ("{name: a, on: lag}", "missing_field", "the rule a on lag needs lag_over"),
        (
            "{name: a, on: lag, lag_over: 5}",
            "wrong_value",
            "rules[a].lag_over must be a time with its unit: 500ms, 30s, 5m, 2h, 1d",
        ),
        ("{name: a, on: run_failed, job: x}", "misplaced_field", "job means nothing to run_failed"),
        ("{name: a, on: run_late, later_than: 1h, timezone: UTC}", "misplaced_field", "timezone is for finished_by"),
        ("{name: a, on: run_failed, chanels: [hook]}", "unknown_field", "rules[a].chanels is not a field of the rule"),
        ("{name: a, on: run_failed, channels: [hok]}", "unknown_channel", "there is no channel hok"),
        ("{name: A b, on: run_failed}", "wrong_value", "rules[A b].name must be up to 63 small letters"),
        ("{on: run_failed}", "missing_field", "rules[0].name is needed"),
        ("{name: a}", "missing_field", "rules[a].on is needed"),
    ],
)
def test_a_wrong_rule_is_told_with_its_place(line: str, code: str, said: str) -> None:
    text = f'kind: Alerts\nname: ops\nchannels: {{hook: {{kind: webhook, url: "https://x.org"}}}}\nrules:\n  - {line}\n'
    found = problems(text)
    assert [(number, kind) for number, _, kind, _ in found] == [(5, code)]
    assert found[0][3].startswith(said)


@pytest.mark.parametrize(
    ("channel", "code"),
    [
        ("{kind: webhook}", "missing_field"),
        ("{kind: pager}", "wrong_value"),
        ("{url: 'https://x.org'}", "missing_field"),
        ("{kind: webhook, url: 'ftp://x.org'}", "wrong_value"),
        ("{kind: webhook, url: 'https://ann:secret@x.org'}", "wrong_value"),
        ("{kind: mail, host: x, from: a@x.org}", "missing_field"),
        ("{kind: mail, host: x, from: a@x.org, to: nobody}", "wrong_value"),
        ("{kind: slack, credential: s, headers: {a: b}}", "unknown_field"),
    ],
)
def test_a_wrong_channel_is_told_with_its_place(channel: str, code: str) -> None:
    found = problems(f"kind: Alerts\nname: ops\nchannels:\n  c: {channel}\n")
    assert [(line, kind) for line, _, kind, _ in found] == [(4, code)]
    assert "secret" not in str(found)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    text = "kind: Alert\nrules:\n  - {name: a, on: run_failed}\n  - {name: a, on: run_lat}\n"
    assert [(line, code) for line, _, code, _ in problems(text)] == [
        (1, "missing_field"), (1, "wrong_value"), (4, "given_twice"), (4, "wrong_value"),
    ]  # fmt: skip


def test_text_that_is_no_yaml_is_refused() -> None:
    assert [code for *_, code, _ in problems("kind: [")] == ["yaml_invalid"]
