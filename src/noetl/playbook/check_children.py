"""Checks tasks that start other playbooks: one that does not say whether it waits is told that it does."""

from __future__ import annotations

from typing import Final

from noetl.playbook.parse import Parsed
from noetl.playbook.parts import tasks_in, word_at
from noetl.playbook.problems import Problems

_SAYS: Final = frozenset({"wait", "return_step", "result_step", "return_result"})


def check_children(parsed: Parsed, problems: Problems) -> None:
    """Warn of children whose parent waits for them without saying so, which older NoETL did in local runs alone."""
    for task in tasks_in(parsed.tree):
        if word_at(task, "kind") == "playbook" and not _SAYS & task.mapping.keys():
            said = "this waits for the end of the other playbook, which older NoETL did only in local runs"
            hint = "write wait: true, or wait: false to go on at once with its execution_id"
            problems.warning("waits_unsaid", said, task.key_place("kind"), hint)
