"""Tasks of the kind `secrets`: a playbook goes in, which steps come to a secret, and which secrets it may ask for, comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from noetl.language.playbook.model import KeychainEntry, Playbook, Task
from noetl.language.templates.template import is_template

KIND: Final = "secrets"
KEPT_SECONDS: Final = 300
_PROVIDERS: Final = {"env": "environment", "google": "gcp", "kubernetes": "k8s", "hashicorp": "vault"}
_OWN: Final = frozenset({"ttl", "key"})


def entry_of(options: dict[str, Any], auth: Any) -> KeychainEntry:
    """Return how the secret of a task is had, as an entry of a keychain that the playbook does not declare."""
    given = {name: value for name, value in options.items() if name not in _OWN and value is not None}
    provider = str(given.get("provider") or "env")
    given["provider"] = _PROVIDERS.get(provider, provider)
    ttl = options.get("ttl")
    return KeychainEntry(
        name=f"{given['provider']}:{given.get('secret')}",
        kind="secret_manager",
        auth=None if auth is None else str(auth),
        ttl=KEPT_SECONDS if ttl is None else int(float(ttl)),
        options=given,
    )


def may_ask_for(playbook: Playbook, entry: KeychainEntry) -> bool:
    """Tell whether a task of a playbook asks for an entry, as far as that can be told before its templates are rendered."""
    if entry.kind != "secret_manager":
        return False
    for task in _tasks(playbook):
        written = entry_of(task.options, task.auth)
        wanted = {**written.options, "auth": written.auth}
        given = {**entry.options, "auth": entry.auth}
        if wanted.keys() == given.keys() and all(
            is_template(wanted[name]) or wanted[name] == given[name] for name in wanted
        ):
            return True
    return False


def secret_steps(playbook: Playbook) -> frozenset[str]:
    """Return the steps that come to a secret: those whose last task asks for one, but for loops."""
    return frozenset(
        name
        for name, step in playbook.steps.items()
        if step.loop is None and step.tasks and _meant(playbook, step.tasks[-1]).kind == KIND
    )


def _tasks(playbook: Playbook) -> Iterator[Task]:
    for task in (*playbook.workbook.values(), *(task for step in playbook.steps.values() for task in step.tasks)):
        if task.kind == KIND:
            yield task


def _meant(playbook: Playbook, task: Task) -> Task:
    return playbook.workbook.get(str(task.options.get("name")), task) if task.kind == "workbook" else task
