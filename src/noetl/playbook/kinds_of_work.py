"""The kinds of tasks that run programs and other tasks, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.grammar import NAME
from noetl.playbook.kinds import ELSEWHERE, ONE_TIMEOUT, SCRIPT, STATEMENTS, SWITCH, TIMEOUT, TIMEOUT_SECONDS, Kind
from noetl.playbook.shapes import (
    ANYTHING,
    BINDINGS,
    FLAG,
    TEXT,
    Alternatives,
    Choice,
    Either,
    Field,
    ListOf,
    MapOf,
    Number,
    Record,
    Template,
    Whole,
    templated,
)

_OBJECT: Final = Either((BINDINGS, Template()))
_DEPS: Final = Record(
    "deps",
    {
        "sys_path": Field(ListOf(TEXT), "Directories modules are looked for in."),
        "venv_path": Field(TEXT, "A virtual environment to use."),
        "packages": Field(ListOf(TEXT), "Packages the code needs."),
    },
)
_ON_FAILURE: Final = Record(
    "on_failure",
    {
        "troubleshoot": Field(
            Either((FLAG, TEXT)),
            "Whether a playbook is asked what was wrong, or the path of one; it finds execution_id in its workload.",
        ),
        "troubleshoot_path": Field(TEXT, "The path of the playbook that is asked."),
    },
    "Every further key is part of the workload of the playbook that is asked.",
    extra="kept",
)

WORK_KINDS: Final[Mapping[str, Kind]] = {
    "python": Kind(
        "Runs Python code: it assigns `result`, returns, or defines `main`, and finds `args`, `context`, `execution_id` and `json`.",
        {
            "code": Field(TEXT, "The code."),
            "script": ELSEWHERE,
            "deps": Field(_DEPS, "What the code needs."),
            "memory_mb": Field(templated(Whole(1)), "Memory it may use, in MiB."),
            "timeout": TIMEOUT,
        },
        (Alternatives({"code": "code", "script": "script"}, required=True),),
        program="code",
    ),
    "shell": Kind(
        "Runs commands of the shell.",
        {
            "cmds": Field(STATEMENTS, "The commands."),
            "command": Field(STATEMENTS, "The commands."),
            "cwd": Field(TEXT, "The directory they run in."),
            "env": Field(MapOf(ANYTHING), "Variables of the environment."),
            "shell": Field(Either((TEXT, FLAG)), "The shell."),
            "capture": Field(SWITCH, "Whether the output is part of the result."),
            "timeout_seconds": TIMEOUT_SECONDS,
            "timeout": TIMEOUT,
        },
        (
            Alternatives({"cmds": "cmds", "command": "cmds"}, required=True),
            ONE_TIMEOUT,
        ),
    ),
    "script": Kind(
        "Runs a program kept elsewhere.",
        {"script": Field(SCRIPT, "The program.", required=True), "job": Field(BINDINGS, "How it is run."), "timeout": TIMEOUT},
    ),
    "spark": Kind(
        "Runs SQL or Python on Spark over rows of the playbook, such as the results of a loop.",
        {
            "sql": Field(TEXT, "The query; each list or loop in input is a table of its name, each other value :name."),
            "code": Field(TEXT, "Python that defines main(session, …) with a DataFrame per table and returns one."),
            "max_rows": Field(templated(Whole(1)), "Rows it may come to; 10,000 if left out."),
            "timeout": TIMEOUT,
        },
        (Alternatives({"sql": "sql", "code": "code"}, required=True),),
        program="code",
    ),
    "playbook": Kind(
        "Runs another playbook.",
        {
            "path": Field(TEXT, "Its path in the catalog."),
            "catalog_id": Field(Either((TEXT, Whole(1))), "Its id in the catalog."),
            "version": Field(Either((Whole(1), TEXT)), "Its version; the latest if left out."),
            "payload": Field(BINDINGS, "Another word for input."),
            "return_step": Field(TEXT, "Wait for it, and take the result of this step."),
            "return_result": Field(SWITCH, "Wait for it, and take its result."),
            "wait": Field(SWITCH, "Whether to wait for its end, as it does if left out; false goes on at once with its execution id."),
            "result_step": Field(TEXT, "The step whose result is taken."),
            "timeout": TIMEOUT,
            "poll_interval": Field(templated(Number(positive=True)), "Without effect: a run that waits holds no worker."),
        },
        (Alternatives({"path": "path", "catalog_id": "catalog_id"}, required=True),),
    ),
    "agent": Kind(
        "Runs an agent, a playbook or a function of your own, and answers in one envelope.",
        {
            "framework": Field(TEXT, "What the agent is: noetl, a playbook, or custom, a function.", required=True),
            "entrypoint": Field(TEXT, "The playbook's path, or module:function, or file.py:function.", required=True),
            "version": Field(Either((Whole(1), TEXT)), "The playbook's version; the latest if left out."),
            "payload": Field(_OBJECT, "What the agent is given, over input."),
            "invoke_kwargs": Field(_OBJECT, "More of the payload for a playbook, keyword arguments for a function."),
            "entrypoint_mode": Field(templated(Choice(("factory", "callable"))), "Whether the function makes the agent or is it; a class and one with entrypoint_args makes it."),
            "entrypoint_args": Field(_OBJECT, "Keyword arguments for the function that makes the agent."),
            "invoke_method": Field(TEXT, "The method of the agent that is called; ainvoke, run_async, invoke or run if left out."),
            "on_failure": Field(_ON_FAILURE, "What to do when it fails; with it, the step goes on with the envelope of the failure."),
            "deps": Field(_DEPS, "What the function needs."),
            "memory_mb": Field(templated(Whole(1)), "Memory the function may use, in MiB."),
            "timeout": TIMEOUT,
        },
    ),
    "workbook": Kind(
        "Runs a task of the workbook.",
        {
            "name": Field(NAME, "The task of the workbook."),
            "task": Field(NAME, "The task of the workbook, where it differs from this task's own name."),
        },
    ),
    "artifact": Kind(
        "Reads or writes a stored result.",
        {
            "action": Field(Choice(("get", "put")), "What to do; get if left out."),
            "ref": Field(ANYTHING, "The reference."),
            "format": Field(Choice(("json", "arrow")), "How input.data is stored by put; json if left out."),
        },
    ),
    "result_fetch": Kind(
        "Reads a stored result.",
        {"action": Field(Choice(("get",)), "What to do."), "ref": Field(ANYTHING, "The reference.")},
    ),
    "noop": Kind("Does nothing: carries a policy and `set` only."),
}  # fmt: skip
