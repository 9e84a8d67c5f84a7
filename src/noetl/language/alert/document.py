"""Reads a file of alerts: its text goes in, rules and channels come out, or `AlertsInvalid` with every problem at once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from noetl.errors import InputError
from noetl.language.alert.grammar import ALERTS, CHANNELS
from noetl.language.alert.rule import Rule, rule_of
from noetl.language.dag.alert_conditions import hold_condition
from noetl.language.grammar.matcher import Matcher
from noetl.language.grammar.problems import Problem, Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.grammar.yaml_reader import read
from noetl.language.playbook.model import Place
from noetl.model.canonical import canonical_json


class AlertsInvalid(InputError):
    """The file of alerts has problems."""

    code = "alerts_invalid"


class AlertsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Rules and channels under one name, as they were written."""

    name: str
    rules: list[dict[str, Any]]
    channels: dict[str, dict[str, Any]]

    @property
    def digest(self) -> str:
        """The digest of what they say; layout and comments do not matter."""
        return hashlib.sha256(canonical_json({"rules": self.rules, "channels": self.channels})).hexdigest()

    def parsed(self) -> list[Rule]:
        """Return the rules as values."""
        return [rule_of(one) for one in self.rules]


def parse_alerts(text: str, *, file: str | None = None, known_channels: Collection[str] = ()) -> AlertsDocument:
    """Read a file of alerts; `known_channels` are those that other files brought."""
    problems = Problems(file)
    root = _held(text, problems, known_channels)
    if root is None or problems.errors:
        raise _refusal(problems.in_order())
    rules, channels = root.get("rules"), root.get("channels")
    return AlertsDocument(
        name=str(root.mapping["name"].text),
        rules=[] if rules is None else rules.plain(),
        channels={} if channels is None else channels.plain(),
    )


def problems_of(text: str, *, file: str | None = None) -> list[Problem]:
    """Return every problem of a file of alerts by itself; a channel it does not bring may be another file's."""
    problems = Problems(file)
    _held(text, problems, None)
    return problems.in_order()


def is_alerts(text: str) -> bool:
    """Tell whether a file is one of alerts, by its kind."""
    root = read(text, Problems())
    if root is None:
        return re.search(r"^kind:\s*Alerts\s*$", text, re.MULTILINE) is not None
    kind = root.get("kind")
    return kind is not None and kind.text == "Alerts"


def _held(text: str, problems: Problems, known_channels: Collection[str] | None) -> Node | None:
    """Note what is wrong with a file, and return what was read; without known channels, any may be another file's."""
    root = read(text, problems, "file of alerts")
    if root is None:
        return None
    Matcher(problems).match(root, ALERTS, "")
    channels = root.get("channels") or Node({}, root.place)
    for name, channel in channels.mapping.items():
        _hold_channel(name, channel, problems)
    rules = root.get("rules")
    seen: set[str] = set()
    missing = problems.warning if known_channels is None else problems.error
    known = {*channels.mapping, *(known_channels or ())}
    for rule in [] if rules is None else rules.items:
        _hold_rule(rule, known, seen, problems, missing)
    return root


def _hold_channel(name: str, channel: Node, problems: Problems) -> None:
    kind = channel.get("kind")
    record = None if kind is None else CHANNELS.get(kind.text or "")
    if record is None or kind is None:
        return
    Matcher(problems).match(channel, record, f"channels.{name}")
    if kind.text in ("webhook", "slack") and channel.get("url") is None and channel.get("credential") is None:
        said = f"the channel {name} does not say where messages go"
        problems.error("missing_field", said, channel.place, "write url: …, or credential: NAME of one that has a url")


def _hold_rule(
    rule: Node,
    channels: Collection[str],
    seen: set[str],
    problems: Problems,
    missing: Callable[[str, str, Place, str | None], None],
) -> None:
    name = rule.get("name")
    if name is not None and name.text is not None:
        if name.text in seen:
            problems.error("given_twice", f"there are two rules {name.text}", name.place, "give one another name")
        seen.add(name.text)
    hold_condition(rule, f"the rule {'' if name is None else name.text}".strip(), problems)
    told = rule.get("channels")
    for one in [] if told is None else told.items:
        if one.text is not None and one.text not in channels:
            missing("unknown_channel", f"there is no channel {one.text}", one.place, suggest(one.text, channels))


def _refusal(problems: list[Problem]) -> AlertsInvalid:
    return AlertsInvalid("\n".join(map(str, problems)), problems=problems)
