"""The grammar of what a step has beside its tasks: arcs, loops, frames and admission, as tables."""

from __future__ import annotations

from typing import Final

from noetl.language.grammar.shapes import (
    ANYTHING,
    BINDINGS,
    FLAG,
    TEXT,
    Choice,
    Condition,
    Duration,
    Either,
    Field,
    ListOf,
    Number,
    Record,
    Template,
    Whole,
    templated,
)
from noetl.language.playbook.grammar.task import NO_EXPR, SET, STEP_NAME, WORD

ARC: Final = Record(
    "arc",
    {
        "step": Field(STEP_NAME, "Where it goes.", required=True),
        "when": Field(Condition(), "The condition; always if left out."),
        "set": Field(SET, "Values to set on the way."),
        "spec": Field(BINDINGS, "Reserved."),
    },
    "A way to another step.",
    removed={"args": "write set: {ctx.name: …}", "then": "write step", **NO_EXPR},
)
NEXT: Final = Record(
    "next",
    {
        "spec": Field(
            Record(
                "next spec",
                {
                    "mode": Field(
                        Choice(("exclusive", "inclusive")), "exclusive takes the first arc that holds, inclusive all."
                    ),
                    "on_no_match": Field(
                        Choice(("complete", "quiet")),
                        "If no arc holds the branch ends, and the workflow with its last branch;"
                        " quiet says that this is no error, where no_next_is_error makes it one.",
                    ),
                    "policy": Field(BINDINGS, "Reserved."),
                },
            ),
            "How arcs are chosen.",
        ),
        "arcs": Field(ListOf(ARC), "The ways on, in order."),
    },
    "Where it goes after the step.",
    homes={
        "mode": "next.spec.mode",
        "on_no_match": "next.spec.on_no_match",
        "step": "next.arcs[].step",
        "when": "next.arcs[].when",
    },
)

FRAME: Final = Record(
    "frame",
    {
        "max_rows": Field(templated(Whole(1)), "Rows in a frame at most; the runtime chooses if left out."),
        "max_seconds": Field(templated(Number(positive=True)), "Seconds a frame is worked on at most; 30 if left out."),
        "max_bytes": Field(templated(Whole(1)), "Bytes of results in a frame at most; 64 MiB if left out."),
        "lease_seconds": Field(templated(Number(positive=True)), "Seconds until a silent worker loses the frame; 120."),
        "heartbeat_seconds": Field(templated(Number(positive=True)), "Seconds between signs of life; 30."),
        "row_concurrency": Field(templated(Whole(1)), "Rows of a frame worked on at once; 1."),
        "process": Field(
            Choice(("row", "frame")), "Run the tasks for each row, or once for the frame, which then has one result."
        ),
        "commit": Field(Choice(("row", "frame")), "Write the last task for each row, or once for the frame."),
        "verify_ipc": Field(FLAG, "Whether what its frames read from memory is proven by its digest; false."),
        "retry_mode": Field(Choice(("whole_frame", "resume")), "What a new try starts with."),
        "max_attempts": Field(templated(Whole(1)), "How often a frame is tried in total; 3."),
    },
    "The bounds of a frame and how its rows are worked off.",
)
LOOP: Final = Record(
    "loop",
    {
        "in": Field(Either((ListOf(ANYTHING), Template())), "The rows: a list, or a template that comes to one."),
        "cursor": Field(
            Record(
                "cursor",
                {
                    "kind": Field(TEXT, "The kind of database.", required=True),
                    "auth": Field(ANYTHING, "The credential: its name, or a template."),
                    "claim": Field(
                        TEXT, "The statement that claims up to __frame_max_rows rows and returns them.", required=True
                    ),
                    "options": Field(
                        Record(
                            "cursor options",
                            {
                                "pool_size": Field(
                                    templated(Whole(1)),
                                    "Connections a worker opens for claims; those of the credential, or 8.",
                                ),
                                "max_iterations": Field(
                                    templated(Whole(1)), "Without effect: a claim without rows ends the loop."
                                ),
                            },
                        ),
                        "Options of the database's driver.",
                    ),
                },
            ),
            "A query that claims rows until there are none.",
        ),
        "iterator": Field(WORD, "The name of the row: iter.<name>.", required=True),
        "spec": Field(
            Record(
                "loop spec",
                {
                    "mode": Field(Choice(("sequential", "parallel", "cursor", "fanout")), "How rows are worked off."),
                    "max_in_flight": Field(templated(Whole(1)), "Frames worked on at once, by one worker each."),
                    "policy": Field(
                        Record(
                            "loop policy",
                            {
                                "exec": Field(
                                    Choice(("local", "distributed", "spark")),
                                    "Where frames run: by workers, or inside Spark's executors.",
                                ),
                                "results": Field(ANYTHING, "Without effect: every row's result is kept."),
                            },
                        ),
                        "Where rows may run.",
                    ),
                    "frame": Field(FRAME, "The bounds of a frame."),
                    "fanout": Field(
                        Record(
                            "fanout",
                            {
                                "fail_fast": Field(FLAG, "Stop at the first shard that failed."),
                                "allow_partial": Field(FLAG, "Go on although some shards failed."),
                                "max_shard_retries": Field(Whole(), "New tries for a shard; 2."),
                            },
                        ),
                        "When a fan-out counts as failed.",
                    ),
                },
            ),
            "How rows are worked off.",
        ),
    },
    "Runs the step once per row.",
    homes={name: f"loop.spec.{name}" for name in ("mode", "max_in_flight", "frame", "fanout", "policy")},
)

_ALLOW: Final = Record("admission", {"allow": Field(templated(FLAG), "Whether the step is entered.", required=True)})
ADMIT_RULE: Final = Record(
    "admission rule",
    {
        "when": Field(Condition(), "The rule holds if this comes to true."),
        "then": Field(_ALLOW, "Whether the step is entered."),
        "else": Field(
            Record("else", {"then": Field(_ALLOW, "Whether the step is entered.", required=True)}), "Holds always."
        ),
    },
    removed=NO_EXPR,
)
_FAILURE: Final = Choice(("fail_fast", "best_effort"))
STEP_SPEC: Final = Record(
    "step spec",
    {
        "timeout": Field(templated(Duration()), "How long the step may take."),
        "policy": Field(
            Record(
                "step policy",
                {
                    "admit": Field(
                        Record(
                            "admit",
                            {
                                "mode": Field(Choice(("exclusive",)), "The first rule that holds decides."),
                                "rules": Field(ListOf(ADMIT_RULE), "The rules, in order.", required=True),
                            },
                        ),
                        "Whether the step is entered.",
                    ),
                    "lifecycle": Field(
                        Record(
                            "lifecycle",
                            {
                                "timeout_s": Field(templated(Number(positive=True)), "How long the step may take."),
                                "deadline_s": Field(templated(Number(positive=True)), "Reserved."),
                            },
                        ),
                        "Bounds of time.",
                    ),
                    "failure": Field(
                        Either(
                            (
                                _FAILURE,
                                Record("failure", {"mode": Field(_FAILURE, "What a failed step does.", required=True)}),
                            )
                        ),
                        "Whether a failed step, or a loop with failed rows, fails the execution unless an arc handles it, or goes on as if it went well. All rows of a loop are worked off in any case; `fanout.fail_fast` stops at the first.",
                    ),
                    "emit": Field(BINDINGS, "Reserved."),
                },
                homes={"rules": "the task's spec.policy.rules"},
            ),
            "Admission, bounds of time and failure.",
        ),
    },
    "How the step is run.",
    extra="ignored",
    removed={"next_mode": "write next.spec.mode"},
)
