"""The grammar of the job and of the whole DAG, as tables, and the JSON Schema made from them."""

from __future__ import annotations

from typing import Any, Final

from noetl.language.dag.grammar_parts import (
    CHECK,
    CREDENTIAL,
    DAG_NAME,
    DATASET,
    FROM,
    INPUTS,
    KEY_COLUMNS,
    REFERENCE,
    SCHEMA,
    SOURCE,
    WORD,
)
from noetl.language.dag.operators import OPERATORS, PLAYBOOK, PYTHON, SCRIPT, SQL, SQL_FILE
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
from noetl.language.playbook.schema import record_schema

_SECONDS: Final = Number(positive=True)
_IDLE: Final = Either(
    (
        Text(r"never|0|[0-9]+(\.[0-9]+)?(ms|s|m|h|d)", "never, 0, or a time with its unit: 500ms, 30s, 5m, 2h, 1d"),
        Whole(),
    )
)
_SPARK: Final = Field(
    MapOf(
        Either((TEXT, FLAG, Whole(-1), Number())),
        Text(r"spark\.[A-Za-z0-9._-]+", "a setting whose name starts with spark."),
    ),
    "Settings of the Spark session.",
)
_SHARED: Final = {
    "idle_timeout": Field(_IDLE, "How long a worker waits for more of this job's work before it lets go."),
    "scaling": Field(
        Record("scaling", {"max_concurrency": Field(Whole(1), "How many tasks of the job run at once at most.")}),
        "How far the job spreads.",
    ),
    "timeout_seconds": Field(_SECONDS, "How long one attempt may take."),
    "heartbeat_timeout_seconds": Field(_SECONDS, "How long an attempt may be silent; 120 if left out."),
    "max_attempts": Field(Whole(1), "How often a task is tried in total; 3 if left out."),
    "spark": _SPARK,
}
"""What a job may say for itself and `defaults` for all jobs."""

JOB: Final = Record(
    "job",
    {
        "name": Field(WORD, "The name of the job, once in the DAG.", required=True),
        "desc": Field(TEXT, "What the job is for."),
        "activation": Field(Choice(("source", "reactive")), "What starts it; reactive if it has inputs, else source."),
        "runtime": Field(
            Choice(("dispatcher", "ecs_platform", "ecs_udf", "lambda", "spark")),
            "Where it runs; the operator's own if left out.",
        ),
        "operator": Field(
            WORD, f"What it does: {', '.join(OPERATORS)}, or one that is installed; sql, function and so on tell it."
        ),
        "outputs": Field(Whole(), "How many outputs it has, counted from 0; 1 if left out, 0 for quality_check."),
        "inputs": Field(
            INPUTS, "What it reads: names of jobs or datasets, each with its alias where it needs another."
        ),
        "wait": Field(Choice(("any", "all")), "Whether one or all inputs must have a partition before it is worked."),
        "partition_by": Field(KEY_COLUMNS, "The columns its output is partitioned by; one partition if left out."),
        "execution_strategy": Field(
            Choice(("PerUpdate", "PerPartition")), "Whether it reads what is new or whole partitions; PerPartition."
        ),
        "update_strategy": Field(
            Choice(("append", "replace")), "What becomes of the old rows; replace, or append if unique_key is given."
        ),
        "unique_key": Field(KEY_COLUMNS, "The columns by which rows are the same, for append."),
        "source": Field(SOURCE, "What starts a job without inputs; by hand if left out."),
        "bootstrap": Field(
            Record("bootstrap", {"reset_outputs": Field(FLAG, "Whether this version starts with empty outputs.")}),
            "What happens once, when the version is deployed.",
        ),
        "secrets": Field(ListOf(CREDENTIAL), "Names of credentials the job gets."),
        **_SHARED,
        "checks": Field(ListOf(CHECK), "What must hold of its rows."),
        "schema": Field(SCHEMA, "What columns its outputs have."),
        "udf": Field(
            Record(
                "udf",
                {
                    "bundle_id": Field(TEXT, "The uploaded bundle; this DAG's own files if left out."),
                    "entrypoint": Field(TEXT, "The file in it that is run.", required=True),
                },
                "User code.",
            ),
            "User code that runs apart from everything else.",
        ),
        "config": Field(MapOf(ANYTHING), "What the operator is told."),
        "sql": SQL,
        "file": SQL_FILE,
        "function": PYTHON,
        "script": SCRIPT,
        "playbook": PLAYBOOK,
    },
    "One job.",
    homes={
        "max_concurrency": "scaling.max_concurrency",
        "schedule": "source.schedule",
        "reset_outputs": "bootstrap.reset_outputs",
        "requirements": "config.requirements",
        "columns": "schema.columns",
        "evolve": "schema.evolve",
        "timeout": "timeout_seconds",
    },
)

DAG: Final = Record(
    "DAG",
    {
        "apiVersion": Field(Choice(("noetl.io/v2",)), "The version of the language; may be left out."),
        "kind": Field(Choice(("DAG",)), "What this file is; may be left out."),
        "name": Field(DAG_NAME, "The name of the DAG.", required=True),
        "desc": Field(TEXT, "What it is for."),
        "defaults": Field(Record("defaults", _SHARED), "What holds for every job that does not say otherwise."),
        "jobs": Field(ListOf(JOB, 1), "The jobs, in any order.", required=True),
        "publish": Field(
            Either(
                (
                    MapOf(
                        Either(
                            (
                                REFERENCE,
                                Record(
                                    "published dataset",
                                    {"from": Field(Either((REFERENCE, FROM)), "The job's output.", required=True)},
                                ),
                            )
                        ),
                        DATASET,
                    ),
                    ListOf(DATASET),
                )
            ),
            "Datasets others read by name: each name with its job or output, or a list of jobs.",
        ),
    },
    "A NoETL DAG.",
    homes={"max_attempts": "defaults.max_attempts", "spark": "defaults.spark", "metadata": "name and desc"},
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a DAG."""
    schema = record_schema(DAG)
    job = record_schema(JOB)
    job["allOf"] = [
        {
            "if": {"properties": {"operator": {"const": name}}, "required": ["operator"]},
            "then": {"properties": {"config": record_schema(operator.record(name))}},
        }
        for name, operator in OPERATORS.items()
    ]
    schema["properties"]["jobs"]["items"] = {"$ref": "#/$defs/job"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://noetl.io/schemas/dag.json",
        "title": "NoETL DAG",
        **schema,
        "$defs": {"job": job},
    }
