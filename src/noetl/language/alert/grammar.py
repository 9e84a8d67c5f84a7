"""The grammar of a file of rules and channels, as tables: keys are listed here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.language.dag.alert_conditions import CHANNEL_NAME, CONDITION, ROUTE, SEVERITY
from noetl.language.dag.grammar_parts import CREDENTIAL
from noetl.language.grammar.shapes import FLAG, TEXT, Choice, Either, Field, ListOf, MapOf, Record, Text, Whole

NAME: Final = Text(r"[a-z][a-z0-9_-]{0,62}", "up to 63 small letters, digits, dashes and underscores")
_URL: Final = Text(r"https?://[^\s@]+", "an address such as https://example.org/hook, without a password in it")
_MAIL: Final = Text(r"[^@\s]+@[^@\s]+", "a mail address")
_ATTEMPT: Final = Text(
    r"[0-9]{1,4}ms|[0-5]?[0-9](?:\.[0-9]{1,9})?s|60s|1m", "a time of at most a minute with its unit: 500ms, 10s, 1m"
)

_SHARED: Final[Mapping[str, Field]] = {
    "kind": Field(Choice(("webhook", "slack", "mail")), "How it is reached.", required=True),
    "credential": Field(CREDENTIAL, "The credential that holds its secret."),
    "allow_private": Field(FLAG, "Whether it may be on this machine or in a private network; false if left out."),
    "timeout": Field(_ATTEMPT, "How long one attempt may take, at most 60s; 10s if left out."),
}
_OWN: Final[Mapping[str, Mapping[str, Field]]] = {
    "webhook": {
        "url": Field(_URL, "Where messages are posted; the credential's url if left out."),
        "headers": Field(MapOf(TEXT), "Headers that are sent besides; no secrets."),
    },
    "slack": {"url": Field(_URL, "The incoming webhook; the credential's url if left out, as it is a secret.")},
    "mail": {
        "host": Field(Text(r"[A-Za-z0-9._:-]+", "the name of a server"), "The mail server.", required=True),
        "port": Field(Whole(1), "Its port; 587, or 465 with tls."),
        "security": Field(Choice(("starttls", "tls", "none")), "How the connection is kept safe; starttls."),
        "from": Field(_MAIL, "Who sends.", required=True),
        "to": Field(Either((_MAIL, ListOf(_MAIL, 1))), "Who gets it.", required=True),
    },
}
CHANNELS: Final = {
    kind: Record(f"{kind} channel", {**_SHARED, **fields}, "Where messages go.") for kind, fields in _OWN.items()
}
"""The fields of each kind of channel."""
ANY_CHANNEL: Final = Record("channel", {"kind": _SHARED["kind"]}, "Where messages go.", extra="kept")

RULE: Final = Record(
    "rule",
    {
        "name": Field(NAME, "The name of the rule, once in the file.", required=True),
        "desc": Field(TEXT, "What it is for."),
        "severity": Field(SEVERITY, "How bad it is; error if left out."),
        "title": Field(TEXT, "What people are told first; made from what was found if left out."),
        **CONDITION,
        "on": Field(CONDITION["on"].shape, CONDITION["on"].doc, required=True),
        **ROUTE,
    },
    "One rule.",
)
ALERTS: Final = Record(
    "file of alerts",
    {
        "apiVersion": Field(Choice(("noetl.io/v2",)), "The version of the language; may be left out."),
        "kind": Field(Choice(("Alerts",)), "What this file is.", required=True),
        "name": Field(
            NAME, "The name these rules are applied under; applied again, they replace those before.", required=True
        ),
        "desc": Field(TEXT, "What they are for."),
        "channels": Field(MapOf(ANY_CHANNEL, CHANNEL_NAME), "Channels by name; rules of other files may use them."),
        "rules": Field(ListOf(RULE), "What is looked for, and who is told."),
    },
    "Rules and channels of alerts.",
)
