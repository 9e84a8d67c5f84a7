"""The operators of this build as a table: where each runs, what it is told, and how many outputs it has by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from noetl.language.dag.alert_conditions import CONDITION, ROUTE, SEVERITY
from noetl.language.dag.grammar_parts import CHECK
from noetl.language.dag.model import Runtime
from noetl.language.grammar.shapes import (
    ANYTHING,
    FLAG,
    TEXT,
    Choice,
    Either,
    Field,
    ListOf,
    MapOf,
    Record,
    Text,
    Whole,
)

RELATIVE_PATH: Final = Text(
    r"(?!/)(?!.*(^|/)\.{1,2}(/|$))(?!.*//)[^\\:\x00-\x1f]*[^\\:/\x00-\x1f]",
    "a path below the DAG's directory, with / between its parts",
)
FUNCTION: Final = Text(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "a module and a function in it, such as cleaning:clean"
)
REQUIREMENTS: Final = Field(
    Either((RELATIVE_PATH, ListOf(TEXT))), "Packages the job needs: a requirements file beside the DAG, or a list."
)


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator does, where it runs, and the fields of its config; of each group in `needs`, one is given."""

    doc: str
    runtime: Runtime
    config: Mapping[str, Field] = field(default_factory=dict)
    needs: tuple[tuple[str, ...], ...] = ()
    outputs: int = 1
    one_input: bool = False
    """Whether it takes exactly one input; otherwise any number."""
    columns: tuple[str, ...] | None = None
    """The columns of what it writes, where they are always the same."""
    partition_by: tuple[str, ...] = ()
    """The columns its output is partitioned by unless told."""

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Where it can run."""
        return (self.runtime,) if self.runtime in ("ecs_udf", "lambda") else (self.runtime, "ecs_platform")

    def record(self, name: str) -> Record:
        """Return the grammar of its config, in which further keys are kept."""
        return Record(f"config of {name}", self.config, self.doc, extra="kept")


SQL: Final = Field(TEXT, "One SELECT; each input is a table under its alias.")
SQL_FILE: Final = Field(RELATIVE_PATH, "The file beside the DAG that holds the SELECT.")
PYTHON: Final = Field(FUNCTION, "The function `module:name`: DataFrames in by alias, DataFrame out.")
SCRIPT: Final = Field(RELATIVE_PATH, "A Python file beside the DAG with a function `run`.")
PLAYBOOK: Final = Field(RELATIVE_PATH, "The playbook beside the DAG whose frame outputs become the rows.")
_RANGE: Final = ("range", "start", "end")
DELIVERY_COLUMNS: Final = {"_delivery": "string", "_row": "bigint", "_received_at": "timestamp"}
"""What rows of a webhook tell about how they came, if asked for, with their types."""

OPERATORS: Final[Mapping[str, Operator]] = {
    "spark_sql": Operator(
        "Runs one SELECT over the inputs.",
        "spark",
        {"sql": SQL, "file": SQL_FILE, "requirements": REQUIREMENTS},
        needs=(("sql", "file"),),
    ),
    "pyspark": Operator(
        "Calls a Python function with the inputs as DataFrames.",
        "spark",
        {
            "function": PYTHON,
            "script": SCRIPT,
            "batch": Field(FLAG, "Whether several partitions may be given to one call, with the key in each row."),
            "requirements": REQUIREMENTS,
        },
        needs=(("function", "script"),),
    ),
    "playbook": Operator(
        "Runs a playbook; the rows of its frames become the output.",
        "dispatcher",
        {
            "playbook": PLAYBOOK,
            "workload": Field(MapOf(ANYTHING), "Values of the playbook's workload."),
            "step": Field(TEXT, "The step whose rows are taken; the one that gives the result if left out."),
            "rows": Field(TEXT, "Where the rows lie within its result, such as data.items."),
        },
        needs=(("playbook",),),
    ),
    "range_aggregator": Operator(
        "Gathers values of an ordered column into full ranges, each of which is a partition of the output.",
        "dispatcher",
        {
            "cursor_column": Field(TEXT, "The column that only grows."),
            "range_size": Field(Whole(1), "How many values a range spans."),
            "start": Field(Whole(), "Where the first range starts; 0 if left out."),
        },
        needs=(("cursor_column",), ("range_size",)),
        columns=_RANGE,
        partition_by=("range",),
    ),
    "range_splitter": Operator(
        "Cuts ranges into smaller ones, each of which is a partition of the output.",
        "dispatcher",
        {"chunk_size": Field(Whole(1), "How many values a smaller range spans.")},
        needs=(("chunk_size",),),
        columns=_RANGE,
        partition_by=("range",),
    ),
    "compact": Operator(
        "Rewrites the small files of a partition into few, with the same rows.",
        "spark",
        {"target_bytes": Field(Whole(1), "How large a file should become.")},
        one_input=True,
    ),
    "quality_check": Operator(
        "Holds the rows of its inputs against checks; with an output, it writes a row for each check.",
        "spark",
        {"checks": Field(ListOf(CHECK, 1), "What must hold of the input's rows; may stand on the job itself.")},
        needs=(("checks",),),
        outputs=0,
    ),
    "webhook": Operator(
        "Makes rows of what is sent to a webhook source: a JSON object, a list of objects, or one object per line.",
        "dispatcher",
        {
            "delivery": Field(FLAG, "Whether rows get the columns _delivery, _row and _received_at besides."),
            "rows": Field(TEXT, "Where the rows lie within what is sent, such as data.items; all of it if left out."),
            "unknown_fields": Field(
                Choice(("ignore", "refuse")), "What becomes of fields that schema.columns does not have; ignore."
            ),
        },
    ),
    "alert_evaluate": Operator(
        "Raises an alert for each row of a SELECT over what is new, or for what is found in the ledger.",
        "dispatcher",
        {
            "sql": Field(
                TEXT, "One SELECT of DuckDB; each row is an alert: severity, title, message, key, and others."
            ),
            **CONDITION,
            "severity": Field(SEVERITY, "How bad it is, where no row says so; error if left out."),
            "title": Field(TEXT, "What people are told first, of a condition over the ledger."),
            "resolve": Field(
                Choice(("absent", "never")), "Whether an alert is over once it is not found any more; absent."
            ),
        },
        needs=(("sql", "on"),),
        columns=("key", "rule", "severity", "title", "message", "subject", "event_id", "at", "alert_id"),
    ),
    "alert_route": Operator(
        "Makes a message for each alert it reads and each channel; a sender takes them from there.",
        "dispatcher",
        {name: field for name, field in ROUTE.items() if name != "send_resolved"},
        needs=(("channels",),),
        outputs=0,
    ),
    "noop": Operator("Does nothing.", "dispatcher"),
    "invoke": Operator(
        "Calls a function elsewhere, which gets the task and reports its end itself.",
        "lambda",
        {
            "function": Field(TEXT, "The name or ARN of a function of AWS Lambda."),
            "url": Field(TEXT, "The address of a function behind HTTP."),
        },
        needs=(("function", "url"),),
    ),
    "udf": Operator("Runs user code of an uploaded bundle in a pool of its own.", "ecs_udf"),
}
SHORTHANDS: Final[Mapping[str, str]] = {
    "sql": "spark_sql",
    "file": "spark_sql",
    "function": "pyspark",
    "script": "pyspark",
    "playbook": "playbook",
}
"""Fields of `config` that may stand on the job itself, each with the operator it then stands for."""
