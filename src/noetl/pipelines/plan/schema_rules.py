"""How the columns of a dataset may change from one commit to the next: schemas in, a verdict out.

Names and types are what counts. Whether a column may be null is told by Spark from the plan, not from the data, so it
only ever relaxes and is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from noetl.model.dataset import Field

Evolve = Literal["refuse", "add_columns", "widen", "any"]

_LADDER: Final = {"refuse": 0, "add_columns": 1, "widen": 2, "any": 3}
_SPELLINGS: Final = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
    "decimal": "decimal(10,0)",
}
_WORDS: Final = re.compile(r"(?<![a-z0-9_])[a-z_]++(?![a-z0-9_]*+[:(])")
_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)\((\d+)(?:,(-?\d+))?\)")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_WIDER: Final = {("float", "double"), ("date", "timestamp_ntz")} | {(kind, "double") for kind in _WHOLE[:3]}


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit does to the schema of its generation."""

    schema: tuple[Field, ...]
    """The generation's schema afterwards: columns keep their place, new ones follow."""
    change: Literal["none", "first", "evolved"]
    problems: tuple[str, ...] = ()
    """One sentence per column that may not change so; the commit is refused if there is any."""


def judge(current: Sequence[Field], written: Sequence[Field], declared: Sequence[Field], evolve: Evolve) -> Verdict:
    """Decide whether rows of this schema may be committed beside those of the current one.

    Before the first commit the declared columns, if there are any, stand for the current ones.
    """
    known = tuple(current) or tuple(declared)
    if not known:
        return Verdict(schema=tuple(written), change="first")
    new = {column.name: column for column in written}
    allowed = _LADDER[evolve]
    problems: list[str] = []
    schema: list[Field] = []
    for column in known:
        found = new.pop(column.name, None)
        if found is None:
            if allowed < _LADDER["any"]:
                problems.append(f"column {column.name} ({column.type}) is missing")
            schema.append(msgspec.structs.replace(column, nullable=True))
            continue
        kind, problem = _type_after(column, found, evolve)
        if problem:
            problems.append(problem)
        schema.append(Field(column.name, kind, column.nullable or found.nullable))
    for column in new.values():
        if allowed < _LADDER["add_columns"]:
            problems.append(f"column {column.name} ({column.type}) is new")
        # Rows committed before have no value for it.
        schema.append(msgspec.structs.replace(column, nullable=column.nullable or bool(current)))
    after = tuple(schema)
    change: Literal["none", "first", "evolved"]
    change = "first" if not current else "none" if after == tuple(current) else "evolved"
    return Verdict(schema=after, change=change, problems=tuple(problems))


def refusal(dataset: str, verdict: Verdict, evolve: Evolve) -> str:
    """Say why a commit was refused, column by column, and what would allow it."""
    listed = "\n".join(f"  - {problem}" for problem in verdict.problems)
    return (
        f"the schema of {dataset} would change, which `schema.evolve: {evolve}` does not allow:\n{listed}\n"
        "declare the change (`evolve: add_columns`, `widen` or `any`), or make the job return the columns it had"
    )


def spelled(kind: str) -> str:
    """Return a type as Spark's `simpleString` spells it: `INTEGER` is `int`, `DECIMAL(8)` is `decimal(8,0)`."""
    plain = re.sub(r"\s+", "", kind).lower()
    plain = _DECIMAL.sub(lambda found: f"decimal({found[1]},{found[2] or 0})", plain)
    return _WORDS.sub(lambda word: _SPELLINGS.get(word[0], word[0]), plain)


def widens(old: str, new: str) -> bool:
    """Tell whether every value of the old type is a value of the new one."""
    if old in _WHOLE and new in _WHOLE:
        return _WHOLE.index(old) < _WHOLE.index(new)
    if (old, new) in _WIDER:
        return True
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is None or after is None or old == new:
        return False
    scale, new_scale = int(before[2] or 0), int(after[2] or 0)
    return new_scale >= scale and int(after[1]) - new_scale >= int(before[1]) - scale


def _type_after(column: Field, found: Field, evolve: Evolve) -> tuple[str, str | None]:
    old, new = spelled(column.type), spelled(found.type)
    if old == new:
        return column.type, None
    allowed = _LADDER[evolve]
    if allowed >= _LADDER["widen"]:
        if widens(old, new):
            return found.type, None
        if widens(new, old):
            return column.type, None
    if allowed >= _LADDER["any"]:
        return found.type, None
    return column.type, f"column {column.name} was {column.type} and is {found.type}"
