"""Playbooks for tests, made of a few lines."""

from __future__ import annotations

from noetl.language.playbook.model import Playbook, Step, Task
from noetl.language.playbook.parse import parse

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"


def playbook(body: str, **options: object) -> Playbook:
    return parse(HEAD + body, **options).playbook  # type: ignore[arg-type]


def step(fields: str, **options: object) -> Step:
    """Parse a playbook with one step `a` whose fields are given in flow style."""
    return playbook(f"workflow: [{{step: a, {fields}}}]\n", **options).steps["a"]


def task(fields: str, **options: object) -> Task:
    """Parse a playbook with one step that has one task whose fields are given in flow style."""
    return step(f"tool: {{{fields}}}", **options).tasks[0]
