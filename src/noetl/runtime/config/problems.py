"""What is wrong with a configuration, where it stands, and how to mend it.

Never repeats a value that is secret or that came out of a `${NAME}`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from noetl.errors import ConfigError

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was given: a file with line and column, or an environment variable."""

    source: str
    line: int | None = None
    column: int | None = None
    names: tuple[str, ...] = ()
    """The variables that were expanded in the value."""

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"
        return " with ".join([place, *(f"${{{name}}}" for name in self.names)])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend in the configuration."""

    path: str
    message: str
    source: str
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def __str__(self) -> str:
        place = str(Origin(self.source, self.line, self.column))
        parts = [part for part in (place, self.path, self.message) if part]
        return ": ".join(parts) + (f" ({self.hint})" if self.hint else "")


def problem(path: Path, message: str, origin: Origin, hint: str | None = None) -> Problem:
    """Make a problem of the value at a path that came from an origin."""
    return Problem(".".join(path), message, origin.source, origin.line, origin.column, hint)


def refuse(problems: Iterable[Problem]) -> ConfigError:
    """Make the error that carries all problems, in the order in which they stand in their sources."""
    ordered = sorted(problems, key=lambda one: (one.source, one.line or 0, one.column or 0, one.path))
    return ConfigError("\n".join(map(str, ordered)), problems=ordered)


def suggest(word: str, known: Iterable[str]) -> str:
    """Propose the known word that is meant, or list them all."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def explain(kind: str, context: dict[str, Any], fallback: str) -> str:
    """Put a type error into words; the kinds are those of pydantic and of `setting_types`."""
    match kind:
        case "int_parsing" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "float_parsing" | "finite_number":
            return "must be a number"
        case "bool_parsing":
            return "must be true or false"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "greater_than":
            return f"must be more than {context['gt']:g}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "string_too_short":
            return "must not be empty"
        case "string_pattern_mismatch":
            return "must be 1 to 128 letters, digits, dots, dashes and underscores, and start with a letter or digit"
        case "literal_error":
            return f"must be {context['expected'].replace(chr(39), '')}"
        case "missing":
            return "is needed"
        case "planned" if context["available"]:
            served = f"; {context['instead']}" if context["instead"] else ""
            return f"is not available in this version; use one of {', '.join(context['available'])}{served}"
        case "planned":
            return "is not available in this version; remove this entry"
        case _:
            return fallback
