"""What is wrong with a playbook or a DAG, where it stands and how to mend it. Never repeats a value, which may be a secret."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec

from noetl.errors import InputError, PlaybookInvalid
from noetl.language.playbook.model import Place

Severity = Literal["error", "warning"]
MOST: Final = 1_000
"""Problems of one file that are told; whoever wrote more of them is not served by a longer list."""
_COMPARED: Final = 200
"""Words that a misspelt one is compared with, which takes long for each."""
_LONGEST_WORD: Final = 100
Say = Callable[[str, str, Place], None]
"""Tells about an old spelling: what it is, what to write instead, and where it stands."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to mend in a file."""

    severity: Severity
    code: str
    message: str
    file: str | None = None
    line: int = 1
    column: int = 1
    suggestion: str | None = None

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}"
        if self.file is not None:
            place = f"{self.file}:{self.line}:{self.column}"
        said = f"{place}: {self.severity} {self.code}: {self.message}"
        return f"{said} ({self.suggestion})" if self.suggestion else said


class TooManyProblems(InputError):
    """The file has more problems than are told."""

    code = "too_many_problems"


class Problems:
    """Gathers what is found in one file, up to `MOST` of it."""

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self.found: list[Problem] = []
        self._known: set[Problem] = set()

    def error(self, code: str, message: str, place: Place, suggestion: str | None = None) -> None:
        """Note something that must be mended."""
        self._add("error", code, message, place, suggestion)

    def warning(self, code: str, message: str, place: Place, suggestion: str | None = None) -> None:
        """Note something that can stay but had better be looked at."""
        self._add("warning", code, message, place, suggestion)

    @property
    def errors(self) -> list[Problem]:
        """Those that must be mended."""
        return [problem for problem in self.found if problem.severity == "error"]

    def in_order(self) -> list[Problem]:
        """All of them in the order in which they stand in the file."""
        return sorted(self.found, key=lambda one: (one.line, one.column, one.severity, one.code, one.message))

    def _add(self, severity: Severity, code: str, message: str, place: Place, suggestion: str | None) -> None:
        found = Problem(
            severity=severity,
            code=code,
            message=message,
            file=self._file,
            line=place.line,
            column=place.column,
            suggestion=suggestion,
        )
        # A part that stands under an anchor is read wherever it is used; it is told about once.
        if found in self._known:
            return
        if len(self.found) == MOST:
            raise TooManyProblems(
                f"there are more than {MOST:,} problems; the first: {self.in_order()[0]}", hint="mend that one first"
            )
        self._known.add(found)
        self.found.append(found)


def refusal(problems: list[Problem]) -> PlaybookInvalid:
    """Make the error that carries all problems of a playbook."""
    return PlaybookInvalid("\n".join(map(str, problems)), problems=problems)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is probably meant; of a great many, only those that begin like it are looked at."""
    if len(word) > _LONGEST_WORD:
        return None
    words = sorted(known)
    if len(words) > _COMPARED:
        words = [one for one in words if one[:2] == word[:2]][:_COMPARED]
    close = difflib.get_close_matches(word, [one for one in words if len(one) <= _LONGEST_WORD], n=1)
    return close[0] if close else None


def slip(word: str, known: Iterable[str]) -> str | None:
    """Return the known word from which this one differs by a single letter that is missing, wrong, too many or swapped.

    The first letter is hardly ever the wrong one: `patch` is no misspelt `batch`.
    """
    return next((one for one in sorted(known) if one[:1] == word[:1] and _one_slip(word, one)), None)


def _one_slip(word: str, known: str) -> bool:
    start = 0
    while start < min(len(word), len(known)) and word[start] == known[start]:
        start += 1
    rest, right = word[start:], known[start:]
    swapped = rest[:2] == right[1::-1] and rest[2:] == right[2:]
    return word != known and (swapped or rest[1:] == right[1:] or rest[1:] == right or rest == right[1:])


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Propose the known word that is meant, or list them all."""
    known = sorted(known)
    close = nearest(word, known)
    if close is not None:
        return f"did you mean {close}?"
    more = ", …" if len(known) > _COMPARED else ""
    return f"known: {', '.join(known[:_COMPARED])}{more}" if known else None
