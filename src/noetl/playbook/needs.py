"""What a kind of secret or of task needs beside its kind: a tree goes in, problems come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl.playbook.parts import items_at, tasks_in, word_at
from noetl.playbook.problems import Problems
from noetl.playbook.templates import is_template
from noetl.playbook.tree import Node

_OF_ENDS: Final = {"http": ("url",), **dict.fromkeys(("postgres", "duckdb", "snowflake"), ("table", "query"))}
"""One of these an end of a transfer must have; a target the first."""
_OF_SECRETS: Final = {
    "static": ("data",),
    "secret_manager": ("provider",),
    "bearer": ("auth", "token", "access_token"),
    "token": ("auth",),
    "oauth2": ("endpoint", "auth"),
    "google_id_token": ("target_audience", "audience", "endpoint"),
}
"""One of these an entry of the keychain must have."""


def hold_to_needs(root: Node, problems: Problems) -> None:
    """Note which secrets, containers and ends of transfers lack what a run would look for."""
    for entry in items_at(root, "keychain"):
        kind = word_at(entry, "kind")
        _one_of(entry, _OF_SECRETS.get(kind, ()), f"a keychain entry of kind {kind}", problems)
        data = entry.get("data")
        if kind == "static" and data is not None and not isinstance(data.value, dict) and not is_template(data.value):
            said = "data of a static keychain entry must be a mapping of its fields"
            problems.error("wrong_value", said, data.place, "write data: {field: value}")
    for task in tasks_in(root):
        _has_an_image(task, problems)
        if word_at(task, "kind") != "transfer":
            continue
        for name, most in (("source", None), ("target", 1)):
            end = task.get(name)
            if end is not None:
                system = word_at(end, "type")
                _one_of(end, _OF_ENDS.get(system, ())[:most], f"{name} of type {system}", problems)


def _has_an_image(task: Node, problems: Problems) -> None:
    kind, described = word_at(task, "kind"), task.get("runtime")
    if kind == "script" and task.get("job") is not None:
        _one_of(task.mapping["job"], ("image",), "job of a script", problems)
    elif kind == "container" and (described is None or described.get("image") is None):
        _one_of(task, ("image",), "a container task", problems)


def _one_of(node: Node, names: Sequence[str], what: str, problems: Problems) -> None:
    if names and not set(names) & node.mapping.keys():
        problems.error("missing_field", f"{what} needs {' or '.join(names)}", node.place, f"write {names[0]}: …")
