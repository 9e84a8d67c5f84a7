"""Reads a playbook: its text goes in, the playbook and its warnings come out, or `PlaybookInvalid` with every problem."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from noetl.language.grammar.matcher import Matcher
from noetl.language.grammar.problems import Problem, Problems, refusal
from noetl.language.grammar.tree import Node
from noetl.language.grammar.yaml_reader import read
from noetl.language.playbook.builder import playbook_from
from noetl.language.playbook.checks.broken_references import check_broken
from noetl.language.playbook.grammar.document import PLAYBOOK
from noetl.language.playbook.model import Place, Playbook
from noetl.language.playbook.older_spellings.document import modernised
from noetl.language.playbook.parts import uncalled_in
from noetl.language.playbook.rules import hold_to_needs, hold_to_rules
from noetl.language.playbook.unused_fields import note_unused
from noetl.model.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class Parsed:
    """A playbook that was read, with what to look at in it and where everything stands."""

    playbook: Playbook
    warnings: list[Problem]
    file: str | None
    tree: Node
    """The document in the language of today, with the places of what was written."""

    def place(self, *path: str | int) -> Place:
        """Return where something stands, or the nearest thing around it.

        Items of a list go by their number or by their name: `place("workflow", "fetch", "tool", "get", "url")`.
        """
        return self.tree.place_at(*path)


def parse(text: str, *, file: str | None = None, kinds: Collection[str] | None = None, strict: bool = False) -> Parsed:
    """Read a playbook. `kinds` are further kinds of tasks, whose fields are not checked; `strict` refuses old spellings."""
    problems = Problems(file)
    root = read(text, problems)
    if root is None:
        raise refusal(problems.in_order())
    tree = modernised(root, problems, strict=strict)
    Matcher(problems, kinds or (), uncalled_in(tree)).match(tree, PLAYBOOK, "")
    hold_to_rules(tree, problems, kinds or ())
    hold_to_needs(tree, problems)
    note_unused(tree, problems)
    if problems.errors:
        check_broken(tree, problems)
        raise refusal(problems.in_order())
    digest = hashlib.sha256(canonical_json(root.plain())).hexdigest()
    return Parsed(playbook_from(tree, digest), problems.in_order(), file, tree)
