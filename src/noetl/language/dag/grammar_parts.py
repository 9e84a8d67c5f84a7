"""The grammar of inputs, checks, schemas and sources of a job, as tables: keys are listed here and nowhere else."""

from __future__ import annotations

from typing import Final

from noetl.language.grammar.shapes import (
    ANYTHING,
    FLAG,
    TEXT,
    Choice,
    Either,
    Field,
    ListOf,
    MapOf,
    Number,
    Record,
    Text,
    Whole,
)

WORD: Final = Text(
    r"[A-Za-z_][A-Za-z0-9_]{0,127}",
    "a word of up to 128 letters, digits and underscores that does not start with a digit",
)
DAG_NAME: Final = Text(
    r"[A-Za-z_][A-Za-z0-9_-]{0,127}",
    "up to 128 letters, digits, underscores and dashes that do not start with a digit or dash",
)
DATASET: Final = Text(
    r"[a-z][a-z0-9_]{0,127}", "up to 128 small letters, digits and underscores that start with a letter"
)
REFERENCE: Final = Text(
    r"[A-Za-z_][A-Za-z0-9_]{0,127}(\.[0-9]{1,4})?", "the name of a job or dataset, or a job's output such as orders.1"
)
CREDENTIAL: Final = Text(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}", "the name of a credential")
DURATION: Final = Text(
    r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|s)|[0-9]{1,7}(?:\.[0-9]{1,9})?m|[0-9]{1,5}(?:\.[0-9]{1,9})?h"
    r"|[0-9]{1,4}(?:\.[0-9]{1,9})?d)",
    "a time with its unit: 500ms, 30s, 5m, 2h, 1d; at most 9999d",
)
"""Digits are bounded by unit: no time is longer than 32 years, which any date can be moved by."""
COLUMNS: Final = Either((TEXT, ListOf(TEXT, 1)))
KEY_COLUMNS: Final = Either((WORD, ListOf(WORD)))

FROM: Final = Record(
    "from",
    {
        "job": Field(WORD, "A job of this DAG."),
        "output": Field(Whole(), "Which of its outputs, counted from 0; 0 if left out."),
        "dataset": Field(DATASET, "A dataset that a DAG publishes."),
    },
    "Where rows come from: a job's output, or a published dataset.",
)
INPUT_FIELDS: Final = {
    "from": Field(Either((REFERENCE, FROM)), "Where the rows come from.", required=True),
    "trigger": Field(
        FLAG, "Whether a change of the input starts the job; true if left out, otherwise it is only read."
    ),
    "where": Field(
        MapOf(ANYTHING), "Rows that are read: each column equals its value, or one of its list; all must hold."
    ),
}
ALIAS: Final = Field(WORD, "The name the job knows the input by; the job's or dataset's name if left out.")
INPUTS: Final = Either(
    (
        ListOf(Either((REFERENCE, Record("input", {**INPUT_FIELDS, "alias": ALIAS}, "One input."))), 1),
        MapOf(Either((REFERENCE, Record("input", INPUT_FIELDS, "One input, under its alias."))), WORD),
    )
)

CHECK: Final = Record(
    "check",
    {
        "kind": Field(
            Choice(("not_null", "unique", "range", "set", "row_count", "freshness", "sql")),
            "What is checked.",
            required=True,
        ),
        "columns": Field(COLUMNS, "The column or columns, for not_null, unique, range, set and freshness."),
        "min": Field(ANYTHING, "The least value, for range; the fewest rows, for row_count."),
        "max": Field(ANYTHING, "The greatest value, for range; the most rows, for row_count."),
        "values": Field(ListOf(ANYTHING, 1), "The values that may stand there, for set."),
        "max_age_seconds": Field(Number(positive=True), "How old the newest row may be, for freshness."),
        "sql": Field(TEXT, "A SELECT over the table `output`; each row it returns is a violation."),
        "severity": Field(Choice(("block", "warn")), "Whether a violation fails the task or is only told; block."),
        "output": Field(Whole(), "Which output, counted from 0; 0 if left out."),
    },
    "A promise about the rows of an output.",
)
COLUMN: Final = Record(
    "column",
    {
        "name": Field(TEXT, "The name of the column.", required=True),
        "type": Field(TEXT, "Its type as Spark's DDL spells it, such as bigint or array<string>.", required=True),
        "nullable": Field(FLAG, "Whether it may be null; true if left out."),
    },
    "One column.",
)
SCHEMA: Final = Record(
    "schema",
    {
        "columns": Field(
            Either((MapOf(TEXT), ListOf(COLUMN, 1))),
            "The columns: each name with its type, or a list; taken from the first commit if left out.",
        ),
        "evolve": Field(
            Choice(("refuse", "add_columns", "widen", "any")), "How the schema may change; refuse if left out."
        ),
    },
    "What columns an output has.",
)
SOURCE: Final = Record(
    "source",
    {
        "kind": Field(Choice(("manual", "cron", "always_on", "webhook")), "What starts the job.", required=True),
        "schedule": Field(TEXT, 'When it starts, for cron: five or six fields, "@daily" and its like, or rate(1 day).'),
        "timezone": Field(TEXT, "The zone that cron fields mean, such as Europe/Berlin; UTC if left out."),
        "catch_up": Field(
            Choice(("latest_only", "every_plan")),
            "What becomes of starts that were missed, for cron: only the newest, or all of them; latest_only.",
        ),
        "webhook_path": Field(
            Text(r"(/[A-Za-z0-9_~-]([A-Za-z0-9_.~-]*[A-Za-z0-9_~-])?)+", "a path such as /orders or /shop/orders"),
            "The path that starts it, for webhook; requests go to /api/hooks/TENANT/ORGANIZATION/DAG and this path.",
        ),
        "secret": Field(CREDENTIAL, "The credential whose secret signs requests, for webhook."),
        "signature": Field(
            Choice(("noetl", "github", "none")),
            "How requests are signed, for webhook: noetl if left out; none takes them from anybody.",
        ),
        "every": Field(DURATION, "The least time from one turn's start to the next, for always_on; 1s if left out."),
    },
    "What starts a job without inputs.",
)
