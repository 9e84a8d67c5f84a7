"""What must hold of sources that are kept running and of those that are sent to: secrets, paths, operators, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl.language.dag.operators import OPERATORS
from noetl.language.dag.times import seconds_of
from noetl.language.dag.written_job import WrittenJob
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.tree import Node

SHORTEST_SECONDS: Final = 0.1
"""Turns are not begun more often than this."""


def hold_sources(jobs: Sequence[WrittenJob], problems: Problems) -> None:
    """Note what breaks a rule, job by job, and paths that stand twice."""
    paths: dict[str, str] = {}
    for job in jobs:
        source = job.node.get("source")
        kind = job.text("source", "kind")
        if job.operator == "webhook" and kind != "webhook":
            said = f"{job.name} takes what is sent to it, but nothing can be sent to it"
            hint = "write source: {kind: webhook, webhook_path: /…, secret: …}"
            problems.error("missing_field", said, (source or job.node.get("operator") or job.node).place, hint)
        if source is None or not job.is_source:
            continue
        if kind == "webhook":
            _hold_webhook(job, source, problems)
            _once(job, source, paths, problems)
        elif kind == "always_on":
            _hold_always_on(job, source, problems)


def _hold_webhook(job: WrittenJob, source: Node, problems: Problems) -> None:
    secret, signature = source.get("secret"), job.text("source", "signature")
    if signature == "none":
        if secret is not None:
            said = "a secret has no use where requests are not signed"
            problems.error("misplaced_field", said, source.key_place("secret"), "remove it, or remove signature: none")
    elif secret is None:
        hint = "write secret: CREDENTIAL, or signature: none to take requests from anybody"
        problems.error("missing_field", "a webhook source needs the secret its senders sign with", source.place, hint)
    operator, inputs = job.node.get("operator"), job.node.get("inputs")
    if job.operator in OPERATORS and job.operator != "webhook":
        place = (operator or job.node).place
        hint = "leave the operator out, and do the rest in a job that reads this one"
        problems.error(
            "wrong_value", f"what is sent becomes rows, which {job.operator} does not make of it", place, hint
        )
    if inputs is not None:
        said = "a webhook source reads nothing but what is sent to it"
        problems.error("misplaced_field", said, job.node.key_place("inputs"), "read it in a job that reads this one")
    if job.operator == "webhook" and job.outputs != 1:
        place = (job.node.get("outputs") or job.node).place
        problems.error("wrong_value", "what is sent becomes one table", place, "write outputs: 1")
    if not job.appends:
        hint = "write unique_key: [COLUMN], or config: {delivery: true} and unique_key: [_delivery, _row]"
        problems.warning("replaces_all", f"each request to {job.name} replaces all rows before it", source.place, hint)


def _once(job: WrittenJob, source: Node, paths: dict[str, str], problems: Problems) -> None:
    path = source.get("webhook_path")
    if path is None or path.text is None:
        return
    other = paths.setdefault(path.text, job.name)
    if other != job.name:
        said = f"{job.name} has the path of {other}"
        problems.error("duplicate_name", said, path.place, "give each webhook source a path of its own")


def _hold_always_on(job: WrittenJob, source: Node, problems: Problems) -> None:
    room, every = job.node.get("scaling", "max_concurrency"), source.get("every")
    if room is not None and isinstance(room.value, int) and room.value > 1:
        said = "a source that is kept running has one turn at a time"
        problems.error("wrong_value", said, room.place, "write 1, or leave it out")
    if every is not None and every.text and _too_often(every.text):
        said = f"turns begin {SHORTEST_SECONDS:g} s apart at least"
        problems.error("wrong_value", said, every.place, "write a longer time, such as 1s")
    if job.runtime == "lambda":
        place = (job.node.get("runtime") or job.node).place
        hint = "write source: {kind: cron, …}, or run it on a worker"
        problems.error("wrong_runtime", "a function of a cloud is not kept running", place, hint)


def _too_often(text: str) -> bool:
    try:
        return seconds_of(text) < SHORTEST_SECONDS
    except ValueError:
        return False  # told about as the wrong shape that it is
