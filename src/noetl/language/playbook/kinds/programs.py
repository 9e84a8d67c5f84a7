"""The kinds of tasks that run programs, containers and other tasks, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.language.grammar.shapes import (
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
from noetl.language.playbook.grammar.task import NAME
from noetl.language.playbook.kinds.kind import (
    ELSEWHERE,
    ONE_TIMEOUT,
    SCRIPT,
    STATEMENTS,
    SWITCH,
    TIMEOUT,
    TIMEOUT_SECONDS,
    Kind,
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


_WORDS: Final = Either((ListOf(ANYTHING), TEXT))
_RUNTIMES: Final = Choice(("auto", "kubernetes", "docker", "podman"))
_RUNTIME: Final = Record(
    "runtime",
    {
        "provider": Field(templated(_RUNTIMES), "Where the container runs; auto if left out."),
        "image": Field(TEXT, "The image."),
        "command": Field(_WORDS, "The program, in place of the image's own."),
        "args": Field(_WORDS, "The program's arguments."),
        "env": Field(Either((MapOf(ANYTHING), ListOf(BINDINGS), Template())), "Variables of the environment."),
        "namespace": Field(TEXT, "The namespace of the Job."),
        "serviceAccountName": Field(TEXT, "The service account of the Job."),
        "timeoutSeconds": Field(templated(Number(positive=True)), "How long one try may take."),
        "cleanup": Field(SWITCH, "Whether the cluster deletes the Job some time after its end; true if left out."),
    },
    "Where and how the container runs, in one mapping.",
)

CONTAINER_KINDS: Final[Mapping[str, Kind]] = {
    "container": Kind(
        "Runs a container to its end: as a Kubernetes Job, or in a container engine of the worker.",
        {
            "image": Field(TEXT, "The image."),
            "command": Field(_WORDS, "The program, in place of the image's own."),
            "args": Field(_WORDS, "The program's arguments."),
            "env": Field(
                Either((MapOf(ANYTHING), ListOf(BINDINGS), Template())),
                "Variables of the environment: a mapping, or a list of {name, value}. They travel apart from the description of the container.",
            ),
            "script": ELSEWHERE,
            "runtime": Field(
                Either((_RUNTIMES, _RUNTIME, Template())),
                "Where the container runs: a cluster if one is configured, else an engine found on PATH.",
            ),
            "resources": Field(templated(BINDINGS), "Requests and limits of cpu and memory, as in Kubernetes."),
            "namespace": Field(TEXT, "The namespace of the Job."),
            "service_account": Field(TEXT, "The service account of the Job."),
            "node_selector": Field(templated(BINDINGS), "Labels of the nodes that may run it."),
            "tolerations": Field(templated(ListOf(BINDINGS)), "Taints of nodes that it tolerates."),
            "volumes": Field(templated(ListOf(BINDINGS)), "Volumes as in Kubernetes, each with its mount_path."),
            "labels": Field(templated(BINDINGS), "Labels of the Job and its pods, beside those of the execution."),
            "annotations": Field(templated(BINDINGS), "Annotations of the pods."),
            "image_pull_policy": Field(templated(Choice(("Always", "IfNotPresent", "Never"))), "When the image is pulled."),
            "image_pull_secrets": Field(templated(ListOf(ANYTHING)), "Secrets of the namespace to pull the image with."),
            "working_dir": Field(TEXT, "The directory the program starts in."),
            "restart_policy": Field(templated(Choice(("Never", "OnFailure"))), "Whether a pod starts its program again; Never if left out."),
            "backoff_limit": Field(templated(Whole()), "Pods that may follow one that failed; 0 if left out."),
            "ttl_seconds_after_finished": Field(templated(Whole()), "How long a Job that ended is kept by the cluster; 600 if left out."),
            "cleanup": Field(SWITCH, "Whether the cluster deletes the Job some time after its end; true if left out."),
            "timeout_seconds": Field(templated(Number(positive=True)), "How long one try may take."),
            "timeout": TIMEOUT,
        },
        (Alternatives({"timeout": "timeout", "timeout_seconds": "timeout"}),),
    ),
}  # fmt: skip
