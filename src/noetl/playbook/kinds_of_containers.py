"""The kind of task that runs a container, and how such a container is described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.kinds import ELSEWHERE, SWITCH, TIMEOUT, Kind
from noetl.playbook.shapes import (
    ANYTHING,
    BINDINGS,
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
