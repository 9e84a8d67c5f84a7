"""A checked playbook is the one that stands in its text, and has no errors."""

from __future__ import annotations

import dataclasses
import re

import pytest
from tests.unit.language.playbook.texts import HEAD

from noetl.errors import PlaybookInvalid
from noetl.language.playbook.checked_playbook import CheckedPlaybook

GOOD = HEAD + "workflow: [{step: a, tool: {kind: noop}}]\n"
OTHER = HEAD + "workload: {n: 1}\nworkflow: [{step: b, tool: {kind: noop}}]\n"
# A check finds the step that is not there, and reading tells about the old spelling beside it.
WRONG = HEAD + "workflow: [{step: a, tool: {kind: noop}, next: [{step: nowhere}]}]\n"


def test_nobody_can_hand_in_another_playbook_than_the_text_has() -> None:
    """INV-151."""
    other = CheckedPlaybook(OTHER)
    with pytest.raises(TypeError):
        CheckedPlaybook(GOOD, playbook=other.playbook)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="init=False"):
        dataclasses.replace(CheckedPlaybook(GOOD), playbook=other.playbook, errors_only=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        CheckedPlaybook(GOOD).playbook = other.playbook  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        CheckedPlaybook(GOOD).text = OTHER  # type: ignore[misc]
    replaced = dataclasses.replace(CheckedPlaybook(GOOD), text=OTHER, errors_only=False)
    assert replaced.playbook == other.playbook


def test_a_playbook_with_errors_is_none() -> None:
    with pytest.raises(PlaybookInvalid, match="there is no step nowhere") as refused:
        CheckedPlaybook(WRONG, "demo.yaml")
    assert re.findall(r"demo.yaml:\d+:\d+: (\w+)", str(refused.value)) == ["warning", "error"]
    with pytest.raises(PlaybookInvalid) as refused:
        CheckedPlaybook(WRONG, "demo.yaml", errors_only=True)
    assert re.findall(r"demo.yaml:\d+:\d+: (\w+)", str(refused.value)) == ["error"]


def test_the_kinds_of_the_installation_decide_what_a_text_may_name() -> None:
    text = GOOD.replace("noop", "acme_tool")
    with pytest.raises(PlaybookInvalid):
        CheckedPlaybook(text)
    assert CheckedPlaybook(text, kinds=frozenset({"acme_tool"})).playbook.steps["a"].tasks[0].kind == "acme_tool"
