"""The grammar of the step and of the whole playbook, as tables over those of the smaller parts."""

from __future__ import annotations

from typing import Final

from noetl.language.grammar.shapes import (
    ANYTHING,
    BINDINGS,
    FLAG,
    TEXT,
    Choice,
    Duration,
    Either,
    Field,
    ListOf,
    MapOf,
    Record,
    TaskByKind,
    Text,
    Whole,
)
from noetl.language.playbook.grammar.flow import LOOP, NEXT, STEP_SPEC
from noetl.language.playbook.grammar.task import NAME, SET, STEP_NAME, TASK_FIELDS, WORD
from noetl.language.playbook.kinds.registry import KINDS

API_VERSIONS: Final = ("noetl.io/v2", "noetl.io/v10")
_OWN_FIELDS: Final = {name for kind in KINDS.values() for name in kind.fields} | (set(TASK_FIELDS) - {"name"})

STEP: Final = Record(
    "step",
    {
        "step": Field(STEP_NAME, "The name of the step.", required=True),
        "desc": Field(TEXT, "What the step is for."),
        "input": Field(BINDINGS, "Values the step gets."),
        "loop": Field(LOOP, "Runs the step once per row."),
        "tool": Field(
            Either((ListOf(TaskByKind(), 1), TaskByKind())),
            "One task, or a list of tasks that run one after the other.",
            required=True,
        ),
        "set": Field(SET, "Values to set after the step, with `output` in scope."),
        "next": Field(NEXT, "Where it goes after the step."),
        "spec": Field(STEP_SPEC, "How the step is run."),
    },
    "One node of the workflow.",
    removed={
        "when": "write spec.policy.admit.rules, or a when on the arc that leads here",
        "case": "write next.arcs with when",
        "type": "write tool: {kind: …}",
        "args": "write input",
        "set_ctx": "write set: {ctx.name: …}",
        "set_iter": "write set: {iter.name: …}",
        "result": "write output inside tool",
        "outcome": "write spec.policy.rules inside tool",
        "vars": "write set: {ctx.name: …}",
        "description": "write desc",
        "name": "write step: NAME",
    },
    homes={
        **{name: f"tool.{name}" for name in _OWN_FIELDS},
        "arcs": "next.arcs",
        "timeout": "spec.timeout",
        "policy": "spec.policy",
        "cursor": "loop.cursor",
        "iterator": "loop.iterator",
    },
)

KEYCHAIN: Final = Record(
    "keychain entry",
    {
        "name": Field(WORD, "The name: keychain.<name>.", required=True),
        "kind": Field(
            Choice(("secret_manager", "oauth2", "credential", "bearer", "token", "google_id_token", "static")),
            "How the secret is had.",
            required=True,
        ),
        "provider": Field(TEXT, "The secret manager: gcp, aws, azure, vault or k8s."),
        "scope": Field(Choice(("local", "global", "shared")), "Who shares it; local if left out."),
        "auth": Field(TEXT, "The credential it is had with."),
        "map": Field(
            MapOf(TEXT),
            "Fields of the entry, each with the path it is found at: in the secret manager, or in what was had.",
        ),
        "endpoint": Field(TEXT, "Where tokens are issued."),
        "method": Field(TEXT, "The HTTP method for it."),
        "headers": Field(BINDINGS, "The HTTP headers for it."),
        "data": Field(ANYTHING, "What is sent there; for static, the fields themselves."),
        "auto_renew": Field(FLAG, "Whether it is renewed before it runs out."),
        "ttl": Field(Duration(), "How long it is kept."),
        "region": Field(TEXT, "The region of the secret manager."),
        "residency": Field(Choice(("none", "advisory", "strict")), "Whether the secret may leave its region."),
        "allowed_regions": Field(ListOf(TEXT), "Where it may be used."),
        "service_account_secret": Field(TEXT, "The secret with the service account's key."),
        "target_audience": Field(TEXT, "Whom an ID token is for."),
    },
    "A secret or token, read as keychain.<name>.<field>.",
    extra="kept",
)

METADATA: Final = Record(
    "metadata",
    {
        "name": Field(TEXT, "The name of the playbook.", required=True),
        "path": Field(
            Text(r"/?[A-Za-z0-9_][A-Za-z0-9_./-]{0,511}", "a path of letters, digits, dots, dashes and slashes"),
            "Its path in the catalog, with or without a slash before it; the name if left out.",
        ),
        "description": Field(TEXT, "What it is for."),
        "version": Field(ANYTHING, "A version for people; the catalog counts its own."),
        "labels": Field(BINDINGS, "Labels."),
        "tags": Field(ListOf(TEXT), "Tags."),
        "exposed_in_ui": Field(FLAG, "Whether it is shown in the user interface."),
        "exposes_as_mcp": Field(FLAG, "Whether it is offered as a tool over MCP."),
        "agent": Field(ANYTHING, "How it presents itself to other programs."),
        "capabilities": Field(ANYTHING, "What it can do."),
    },
    "What the playbook is called; other keys are kept.",
    extra="kept",
)
LIMITS: Final = Record(
    "limits",
    {
        "steps_without_work": Field(
            Whole(1, 1_000_000),
            "Steps in a row that give a worker nothing to do but `noop`; 1,000. Tasks of a list that jump in a ring have it, too.",
        ),
        "steps": Field(Whole(1, 1_000_000_000), "Steps entered, each as often as it is; 1,000,000."),
        "events": Field(
            Whole(1, 10_000_000_000),
            "Events of the execution itself: of its steps, commands and their results; 10,000,000.",
        ),
        "seconds": Field(
            Duration(longest=31_536_000), "Time from the request to the end, waiting included; no limit if left out."
        ),
    },
    "What one execution may come to before it is ended as failed. Every execution counts for itself.",
    extra="ignored",
)
EXECUTOR: Final = Record(
    "executor",
    {
        "profile": Field(Choice(("local", "distributed", "auto")), "Without effect: it runs wherever it is started."),
        "runtime": Field(Choice(("worker", "spark")), "What runs the frames of its loops; worker if left out."),
        "version": Field(TEXT, "The runtime it was written for: noetl-runtime/1."),
        "requires": Field(
            Record(
                "requires",
                {
                    "tools": Field(ListOf(TEXT), "Kinds of tools it needs; one that is not there is an error."),
                    "features": Field(ListOf(TEXT), "Without effect."),
                },
            ),
            "What the runtime must have.",
        ),
        "spec": Field(
            Record(
                "executor spec",
                {
                    "entry_step": Field(STEP_NAME, "The first step; the first one written if left out."),
                    "final_step": Field(STEP_NAME, "A step that runs after everything else, whatever happened."),
                    "no_next_is_error": Field(FLAG, "Whether a step without next is a mistake."),
                    "policy": Field(
                        Record(
                            "executor policy",
                            {
                                "defaults": Field(BINDINGS, "Without effect."),
                                "results": Field(BINDINGS, "Without effect."),
                                "limits": Field(LIMITS, "How long an execution may go on."),
                            },
                        ),
                        "Policies for the whole run.",
                    ),
                },
            ),
            "How the workflow starts and ends.",
        ),
    },
    "How the workflow is run.",
    homes={name: f"executor.spec.{name}" for name in ("entry_step", "final_step", "no_next_is_error", "policy")},
)

PLAYBOOK: Final = Record(
    "playbook",
    {
        "apiVersion": Field(Choice(API_VERSIONS), "The version of the language.", required=True),
        "kind": Field(Choice(("Playbook",)), "What this file is.", required=True),
        "metadata": Field(METADATA, "What the playbook is called.", required=True),
        "executor": Field(EXECUTOR, "How the workflow is run."),
        "workload": Field(
            BINDINGS, "Default values, rendered for each request; those of the request are merged over them."
        ),
        "keychain": Field(ListOf(KEYCHAIN), "Secrets and tokens."),
        "workbook": Field(
            ListOf(
                Record(
                    "workbook entry",
                    {
                        "name": Field(NAME, "The name of the task.", required=True),
                        "desc": Field(TEXT, "What the task is for."),
                        "tool": Field(TaskByKind(), "The task.", required=True),
                    },
                )
            ),
            "Tasks that steps use by name.",
        ),
        "workflow": Field(ListOf(STEP, 1), "The steps.", required=True),
    },
    "A NoETL playbook.",
    removed={
        "vars": "write defaults under workload, and values that change under set: {ctx.name: …}",
        "steps": "write workflow",
        "name": "write metadata: {name: …}",
        "path": "write metadata: {path: …}",
    },
)
