"""A playbook that may be registered and run: its text goes in, the text with its valid playbook comes out."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from noetl.language.grammar.problems import refusal
from noetl.language.playbook.checks.all_checks import check
from noetl.language.playbook.model import Playbook
from noetl.language.playbook.parse import parse


@dataclass(frozen=True, slots=True, eq=False)
class CheckedPlaybook:
    """A text and the playbook that stands in it, read and checked once.

    Nobody can hand in the playbook: it is read from the text when the value is made. So whoever registers one of these
    knows that its digest and its plan are those of its text.
    """

    text: str
    file: str | None = None
    """Where the text stands, for messages."""
    kinds: frozenset[str] = frozenset()
    """Further kinds of tasks that the text may name; a catalog takes only what was read with its own."""
    errors_only: InitVar[bool] = False
    """Whether a refusal after reading leaves out the warnings."""
    playbook: Playbook = field(init=False)
    warnings: tuple[str, ...] = field(init=False)

    def __post_init__(self, errors_only: bool) -> None:
        """Read and check the text; raise `PlaybookInvalid` with everything that is wrong in it."""
        parsed = parse(self.text, file=self.file, kinds=self.kinds)
        found = [*parsed.warnings, *check(parsed)]
        if errors := [problem for problem in found if problem.severity == "error"]:
            raise refusal(errors if errors_only else found)
        object.__setattr__(self, "playbook", parsed.playbook)
        object.__setattr__(self, "warnings", tuple(map(str, found)))
