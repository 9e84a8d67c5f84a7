"""What a kind of task is, and the shapes several kinds share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from noetl.language.grammar.shapes import (
    FLAG,
    TEXT,
    Alternatives,
    Choice,
    Duration,
    Either,
    Field,
    ListOf,
    Number,
    Record,
    Text,
    templated,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of task: what it does, its own fields and which of them stand for one thing."""

    doc: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    alternatives: tuple[Alternatives, ...] = ()
    program: str | None = None
    """The field that holds a program: braces in it are its own, so it is never rendered."""
    waits: bool = False
    """Its `timeout` is how long it waits for something, not a bound of the try."""


STATEMENTS: Final = Either((TEXT, ListOf(TEXT, 1)))
BASE64: Final = Text(r"[A-Za-z0-9+/\s]+=*\s*", "base64")
SWITCH: Final = templated(FLAG)
TIMEOUT: Final = Field(templated(Duration()), "How long one try may take.")
TIMEOUT_SECONDS: Final = Field(templated(Number(positive=True)), "Another word for timeout, in seconds.")
ONE_TIMEOUT: Final = Alternatives({"timeout": "timeout", "timeout_seconds": "timeout"})
SCRIPT: Final = Either(
    (
        TEXT,
        Record(
            "script",
            {
                "uri": Field(
                    TEXT,
                    "The address: a path, or one that starts with file:, http:, https:, s3: or gs:.",
                    required=True,
                ),
                "source": Field(
                    Record(
                        "script source",
                        {
                            "type": Field(Choice(("file", "gcs", "s3", "http")), "Where it is kept."),
                            "auth": Field(TEXT, "The credential for it."),
                            "region": Field(TEXT, "Without effect: the credential names the region."),
                        },
                    ),
                    "Where it is kept; the address tells if left out.",
                ),
            },
            "A program kept elsewhere.",
        ),
    )
)
ELSEWHERE: Final = Field(SCRIPT, "A program kept elsewhere: its address, or where it is and how to get it.")
