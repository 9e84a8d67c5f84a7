"""The grammar of a view, as tables: keys are listed here and nowhere else."""

from __future__ import annotations

from typing import Final

from noetl.language.dag.grammar_parts import CREDENTIAL, DATASET, DURATION, KEY_COLUMNS
from noetl.language.grammar.shapes import (
    FLAG,
    TEXT,
    Alternatives,
    Choice,
    Either,
    Field,
    ListOf,
    MapOf,
    Record,
    Text,
    Whole,
)

NAME: Final = Text(r"[a-z][a-z0-9_]{0,62}", "up to 63 small letters, digits and underscores that start with a letter")
TYPE: Final = Text(
    r"[a-z_]+(\.[A-Za-z0-9_-]+)*(\.\*)?", "an event type such as frame.committed, or the beginning of some, as frame.*"
)
TYPES: Final = Either((TYPE, ListOf(TYPE, 1)))
MOMENT: Final = Text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", "a time such as 2026-01-31T12:00:00Z")
TABLE: Final = Text(r"([a-z_][a-z0-9_]{0,50}\.)?[a-z_][a-z0-9_]{0,50}", "a table such as frames or reports.frames")

EVENTS: Final = Record(
    "events",
    {
        "types": Field(TYPES, "Only these types; all if left out."),
        "execution": Field(Text(r"[1-9][0-9]{0,18}", "the id of an execution"), "Only those of one execution."),
        "since": Field(MOMENT, "Only those that happened at this time or later."),
    },
    "Which events of the organization are read.",
)
SOURCE: Final = Record(
    "source",
    {
        "events": Field(Either((TYPES, EVENTS)), "Events of the organization: types, or more to choose them by."),
        "dataset": Field(DATASET, "A dataset that a DAG publishes; the view is computed anew when it changes."),
    },
    "What the view is made of: events, which it reads one after another, or a dataset.",
    alternatives=(Alternatives({"events": "source", "dataset": "source"}, required=True),),
)
TARGET_TABLE: Final = Record(
    "table",
    {
        "credential": Field(CREDENTIAL, "The credential of the database.", required=True),
        "table": Field(TABLE, "The table people read there; the view's name if left out."),
    },
    "A table of a database of yours.",
)
SINK: Final = Either(
    (
        Choice(("postgres",)),
        Record(
            "sink",
            {
                "postgres": Field(TARGET_TABLE, "A table in a PostgreSQL database of yours."),
                "dataset": Field(DATASET, "A dataset that is written barrier by barrier."),
            },
            "Where the rows are kept.",
            alternatives=(Alternatives({"postgres": "sink", "dataset": "sink"}, required=True),),
        ),
    )
)
EVENT_TIME: Final = Record(
    "event_time",
    {
        "column": Field(Choice(("event_time", "ingest_time")), "The time events are ordered by; event_time."),
        "watermark": Field(
            DURATION, "How late an event may come, counted from the newest that was read before.", required=True
        ),
    },
    "What counts as late: such events change nothing, and their number is told.",
)
CHECKPOINT: Final = Record(
    "checkpoint",
    {
        "path": Field(TEXT, "The directory of Spark's state; a place under the settings if left out."),
        "shared": Field(FLAG, "Whether driver and executors see the same directory there; false if left out."),
    },
    "Where Spark keeps its state.",
)
VIEW: Final = Record(
    "view",
    {
        "apiVersion": Field(Choice(("noetl.io/v2",)), "The version of the language; may be left out."),
        "kind": Field(Choice(("View",)), "What this file is.", required=True),
        "name": Field(NAME, "The name of the view.", required=True),
        "desc": Field(TEXT, "What it is for."),
        "source": Field(SOURCE, "What the view is made of.", required=True),
        "sql": Field(TEXT, "One SELECT over the table `events`, or over the dataset's name."),
        "file": Field(
            Text(r"[^/\\].*\.(sql|py)", "a file beside the view that ends with .sql or .py"),
            "A file with the SELECT, or with a function of PySpark.",
        ),
        "function": Field(
            Text(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a function"),
            "The function in the file: DataFrame in, DataFrame out; `view` if left out.",
        ),
        "rollup": Field(
            TEXT,
            "One SELECT over the table `rows`, which is what the query groups; computed anew for each barrier.",
        ),
        "keys": Field(KEY_COLUMNS, "The columns of the result that name a row.", required=True),
        "keep": Field(TEXT, "A condition over the result's columns; rows for which it does not hold leave the view."),
        "event_time": Field(EVENT_TIME, "What counts as late."),
        "sink": Field(SINK, "Where the rows are kept; in NoETL's own database if left out."),
        "barrier_interval_ms": Field(
            Whole(1), "The least time from one barrier to the next, in milliseconds; 1000 if left out."
        ),
        "batch_events": Field(Whole(1), "How many positions of the ledger one barrier covers at most; 50000."),
        "checkpoint": Field(CHECKPOINT, "Where Spark keeps its state."),
        "spark": Field(MapOf(TEXT), "Settings of Spark's session."),
    },
    "A view that is kept up to date.",
    alternatives=(Alternatives({"sql": "query", "file": "query"}, required=True),),
)
