"""Checks what loops do with their rows: writes that race, and frames that cannot be written at once."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.playbook.model import Place, Step
from noetl.playbook.parse import Parsed
from noetl.playbook.problems import Problems
from noetl.playbook.tree import Node

_AT_ONCE = frozenset({"parallel", "fanout", "cursor"})


def check_loops(parsed: Parsed, problems: Problems) -> None:
    """Note what is wrong with loops."""
    for step, node in zip(parsed.playbook.steps.values(), parsed.tree.mapping["workflow"].items, strict=True):
        if step.loop is None:
            continue
        if step.loop.mode in _AT_ONCE:
            for key, place in _shared_writes(node):
                said = f"rows of the step {step.name} write {key} at once: the last row in order wins"
                problems.warning("ctx_written_by_rows", said, place, "write iter.name, and set ctx after the loop")
        _commit(step, node, problems)


def _commit(step: Step, node: Node, problems: Problems) -> None:
    assert step.loop is not None
    commit = node.get("loop", "spec", "frame", "commit")
    if commit is None or commit.value != "frame" or step.tasks[-1].kind == "postgres":
        return
    said = f"commit: frame needs postgres as the last task, and the step {step.name} ends with {step.tasks[-1].kind}"
    problems.error("frame_commit", said, commit.place, "write commit: row, or end the step with a postgres task")


def _shared_writes(step: Node) -> Iterator[tuple[str, Place]]:
    tool = step.mapping["tool"]
    for task in tool.items or [tool]:
        rules = task.get("spec", "policy", "rules")
        places = [task.get("set")]
        for rule in [] if rules is None else rules.items:
            places += [rule.get("then", "set"), rule.get("else", "then", "set")]
        for node in places:
            for key in {} if node is None else node.mapping:
                if node is not None and not key.startswith(("iter.", "step.")):
                    yield key, node.key_place(key)
