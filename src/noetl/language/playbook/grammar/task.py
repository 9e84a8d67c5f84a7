"""The grammar of names, policies and the fields that every task has, as tables."""

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
    MapOf,
    Number,
    Record,
    Template,
    Text,
    Whole,
    templated,
)
from noetl.model.event import INLINE_LIMIT

NAME: Final = Text(
    r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,127}",
    "up to 128 letters, digits, underscores, dots, dashes and blanks, starting with a letter, digit or underscore",
)
STEP_NAME: Final = Text(
    r"[A-Za-z0-9_/][A-Za-z0-9_./ -]{0,127}",
    "up to 128 letters, digits, underscores, slashes, dots, dashes and blanks, starting with none of the last three",
)
WORD: Final = Text(
    r"[A-Za-z_][A-Za-z0-9_]*", "a word of letters, digits and underscores that does not start with a digit"
)
SET: Final = MapOf(
    ANYTHING,
    Text(
        r"((ctx|iter|step)\.)[A-Za-z_]\w*(\.\w+)*|(?!(ctx|iter|step)$)[A-Za-z_]\w*",
        "ctx.name, iter.name, step.name, or a bare name, which stands for ctx.name",
    ),
)
NO_EXPR: Final = {"expr": 'write when: "{{ … }}"'}

THEN: Final = Record(
    "then",
    {
        "do": Field(Choice(("continue", "retry", "break", "jump", "fail")), "What follows; continue if left out."),
        "attempts": Field(templated(Whole(1)), "How often the task is tried in total, for retry; 3 if left out."),
        "backoff": Field(
            Choice(("none", "fixed", "linear", "exponential")), "How the delay grows from try to try, for retry."
        ),
        "delay": Field(templated(Number()), "Seconds before the next try, for retry; 1 if left out."),
        "to": Field(NAME, "The task to go on with, for jump; `previous` is the one before."),
        "set": Field(SET, "Values to set, with `output` in scope."),
    },
    "What a policy rule does.",
    removed={
        "set_vars": "write set: {ctx.name: …}",
        "args": "write set",
        "allow": "admission rules stand under the step's spec.policy.admit",
        **NO_EXPR,
    },
)
RULE: Final = Record(
    "rule",
    {
        "when": Field(Condition(), "The rule holds if this comes to true."),
        "then": Field(THEN, "What follows."),
        "else": Field(
            Record("else", {"then": Field(THEN, "What follows.", required=True)}), "Holds always; the last rule."
        ),
    },
    "One line of a policy; the first that holds decides.",
    removed=NO_EXPR,
    homes={"do": "then.do", "set": "then.set"},
)
_HOOK: Final = Field(ListOf(ANYTHING), "Reserved.")
POLICY: Final = Record(
    "policy",
    {
        "mode": Field(Choice(("exclusive",)), "The first rule that holds decides."),
        "on_unmatched": Field(Choice(("continue", "fail")), "What follows if no rule holds."),
        "rules": Field(ListOf(RULE, 1), "The rules, in order.", required=True),
        "before": _HOOK,
        "after": _HOOK,
        "finally": _HOOK,
    },
    "What follows a task's outcome. If no rule holds, ok continues and an error fails.",
    homes={"when": "rules[].when", "then": "rules[].then"},
)

STORE: Final = Record(
    "store",
    {
        "kind": Field(
            Choice(("auto", "memory", "kv", "disk", "s3", "gcs", "db", "duckdb", "eventlog")), "Where results are kept."
        ),
        "driver": Field(TEXT, "A driver of that kind."),
        "bucket": Field(TEXT, "The bucket."),
        "prefix": Field(TEXT, "What keys begin with."),
        "ttl": Field(Either((Duration(), Choice(("forever",)), Template())), "How long results are kept."),
        "compression": Field(Choice(("none", "gzip", "lz4", "zstd")), "How results are compressed."),
        "credential": Field(TEXT, "The credential for the store."),
    },
    "Where a result is kept.",
)
OUTPUT: Final = Record(
    "output",
    {
        "store": Field(STORE, "Without effect: large results go to the installation's payload store."),
        "select": Field(
            ListOf(
                Record(
                    "select",
                    {
                        "path": Field(
                            Text(r"\$.*", "a path that starts with $, such as $.data.total"), "The path.", required=True
                        ),
                        "as": Field(WORD, "The name it gets.", required=True),
                    },
                )
            ),
            "Values taken out of the result, readable without fetching it.",
        ),
        "accumulate": Field(
            Record(
                "accumulate",
                {
                    "enabled": Field(FLAG, "Whether results are gathered; true if left out."),
                    "strategy": Field(
                        Choice(("append", "replace", "merge", "concat")), "How results are put together."
                    ),
                    "merge_path": Field(TEXT, "The list inside each result, for concat."),
                    "manifest_as": Field(WORD, "Without effect: they are `accumulated` of the step."),
                    "max_items": Field(Whole(1), "How many results are gathered at most."),
                },
            ),
            "How the results of several runs are gathered.",
        ),
        "inline_max_bytes": Field(
            Whole(),
            f"Results of up to this many bytes of JSON stand in the event; {INLINE_LIMIT} at most, and if left out.",
        ),
        "preview_max_bytes": Field(Whole(), "Without effect: there are no previews."),
        "scope": Field(
            Choice(("step", "execution", "workflow", "permanent")),
            "Without effect: results are kept as long as their execution.",
        ),
        "as": Field(WORD, "Without effect: a result goes by the name of its step."),
    },
    "What becomes of a task's result.",
)
TASK_FIELDS: Final = {
    "name": Field(NAME, "The label of the task."),
    "kind": Field(TEXT, "The kind of tool.", required=True),
    "auth": Field(ANYTHING, "The credential: its name, or a template."),
    "input": Field(BINDINGS, "Values the tool gets."),
    "spec": Field(
        Record(
            "task spec",
            {
                "timeout": Field(templated(Duration()), "How long one try may take."),
                "policy": Field(POLICY, "What follows the outcome."),
            },
            homes={"rules": "spec.policy.rules", "retry": "spec.policy.rules with do: retry"},
        ),
        "How the task is run.",
    ),
    "output": Field(OUTPUT, "What becomes of the result."),
    "set": Field(SET, "Values to set after the task, with `output` in scope."),
}
"""The fields of every task; the kind adds its own."""
TASK_REMOVED: Final = {
    "eval": "write spec.policy.rules",
    "outcome": "write output",
    "result": "write output",
    **NO_EXPR,
}
TASK_HOMES: Final = {
    "policy": "spec.policy",
    "retry": "spec.policy.rules with do: retry",
    "next": "the step",
    "loop": "the step",
}
