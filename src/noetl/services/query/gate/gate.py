"""The gate: the text of one SELECT goes in; the SQL to run comes out, written anew from a tree of allowed parts only.

Nothing of the text itself is ever run. What is not known to be harmless is refused, with its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from noetl.services.query.errors import QueryRefused
from noetl.services.query.gate.relations import definition, folded, named_tables, rename
from noetl.services.query.gate.tree_check import Checking

EngineName = Literal["duckdb", "spark"]

LONGEST: Final = 100_000
MOST_TOKENS: Final = 10_000
_BEGINS: Final = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.L_PAREN})
_HINT: Final = "ask one SELECT, or WITH … SELECT, that only reads published datasets"


@dataclass(frozen=True)
class Checked:
    """A query of allowed parts: what it reads, and the way to the SQL that may be run."""

    engine: EngineName
    tree: exp.Expr
    datasets: tuple[str, ...]
    """The names it reads that are none of its own, each once, as they are first written."""
    text: str
    """What was asked; only the places in it are of use from here on."""

    def executable(self, names: Mapping[str, str], published: Collection[str], rows: int) -> str:
        """Return the SQL to run: datasets go by the names given, and no more than so many rows come out."""
        own = {folded(name): fixed for name, fixed in names.items()}
        for name in self.datasets:
            if folded(name) not in own:
                self._refuse_unknown(name, published)
        hidden = {folded(name) for name in published}
        for one in self.tree.find_all(exp.CTE):
            if folded(one.alias) in hidden:
                raise self._refusal(
                    "shadowed", one, f"{one.alias!r} is a published dataset and cannot be a name of WITH"
                )
        tree = self.tree.copy()
        rename(tree, own)
        text = _written(_limited(tree, rows), self.engine)
        _prove(text, self.engine, set(own.values()))
        return text

    def _refuse_unknown(self, name: str, published: Collection[str]) -> None:
        table = next(one for one in named_tables(self.tree) if folded(one.name) == folded(name))
        near = get_close_matches(name, sorted(published), n=1)
        hint = f"did you mean {near[0]}?" if near else "`noetl datasets list` shows what is published"
        raise self._refusal("relation", table, f"there is no published dataset {name[:80]!r}", hint)

    def _refusal(self, rule: str, node: exp.Expr, message: str, hint: str = _HINT) -> QueryRefused:
        return Checking(self.engine, self.text).refusal(rule, node, message, hint)


def read(text: str, engine: EngineName) -> Checked:
    """Check a query's text; `QueryRefused` says what may not be asked, where, and what may."""
    tree = _tree(text, engine)
    Checking(engine, text).check(tree)
    found: dict[str, str] = {}
    for table in named_tables(tree):
        if definition(table) is None:
            found.setdefault(folded(table.name), table.name)
    return Checked(engine, tree, tuple(found.values()), text)


def _tree(text: str, engine: EngineName) -> exp.Expr:
    if len(text) > LONGEST:
        raise QueryRefused("size", f"the query has {len(text):,} characters, and {LONGEST:,} are allowed")
    _look_at_tokens(text, engine)
    try:
        found = sqlglot.parse(text, read=engine, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as problem:
        first = problem.errors[0] if problem.errors else {}
        line, column = int(first.get("line") or 1), int(first.get("col") or 1)
        raise QueryRefused("unreadable", f"this is no SQL of {engine}", line=line, column=column, hint=_HINT) from None
    except SqlglotError:
        raise QueryRefused("unreadable", "a text, name or comment is not closed", hint=_HINT) from None
    except RecursionError:
        raise QueryRefused("size", "the query is nested too deeply", hint="take parts of it apart with WITH") from None
    statements = [one for one in found if one is not None and not isinstance(one, exp.Semicolon)]
    if len(statements) != 1:
        raise QueryRefused("statements", f"this is not one statement but {len(statements)}", hint=_HINT)
    if not isinstance(statements[0], exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
        raise QueryRefused("statement", "this is no SELECT", line=1, column=1, hint=_HINT)
    return statements[0]


def _look_at_tokens(text: str, engine: EngineName) -> None:
    """Refuse what must not even be parsed: the parser logs statements it does not know, and drops what it takes for comments."""
    try:
        tokens = Dialect.get_or_raise(engine).tokenize(text)
    except SqlglotError:
        raise QueryRefused("unreadable", "a text, name or comment is not closed", hint=_HINT) from None
    if len(tokens) > MOST_TOKENS:
        raise QueryRefused("size", f"the query has {len(tokens):,} words, and {MOST_TOKENS:,} are allowed")
    if not tokens:
        raise QueryRefused("statement", "this is no SELECT: it is empty", hint=_HINT)
    if tokens[0].token_type not in _BEGINS and tokens[0].text.upper() != "TABLE":
        raise QueryRefused("statement", "this is no SELECT", line=1, column=1, hint=_HINT)
    for number, token in enumerate(tokens):
        place = _place(text, token)
        if token.token_type is TokenType.HINT or any(said[:1] in ("+", "!") for said in token.comments):
            raise QueryRefused("hint", "hints are not taken", line=place[0], column=place[1], hint="leave it out")
        if token.token_type is TokenType.SEMICOLON and number < len(tokens) - 1:
            raise QueryRefused("statements", "a second statement follows", line=place[0], column=place[1], hint=_HINT)
        after = tokens[number + 1] if number + 1 < len(tokens) else None
        joined = after is not None and after.start == token.end + 1
        if token.token_type is TokenType.NUMBER and joined and after is not None and after.token_type is TokenType.VAR:
            raise QueryRefused(
                "unreadable", "a number runs into a word", line=place[0], column=place[1], hint="put a space between"
            )


def _place(text: str, token: Token) -> tuple[int, int]:
    return text.count("\n", 0, token.start) + 1, token.start - text.rfind("\n", 0, token.start)


def _limited(tree: exp.Expr, rows: int) -> exp.Expr:
    """Cut what comes out, at the top where its order holds; a smaller LIMIT of its own stays."""
    limit = tree.args.get("limit")
    if limit is None and not isinstance(tree, exp.Values | exp.Subquery):
        tree.set("limit", exp.Limit(expression=exp.Literal.number(rows)))
        return tree
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal):
        own = limit.expression
        if not own.is_string and own.name.isdigit() and int(own.name) <= rows:
            return tree
    inner = tree.unnest() if isinstance(tree, exp.Subquery) and not tree.alias else tree
    whole = exp.select("*").from_(exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier("__noetl_all"))))
    return whole.limit(rows)


def _written(tree: exp.Expr, engine: EngineName) -> str:
    try:
        return tree.sql(dialect=engine, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError):
        raise QueryRefused("unwritable", f"a part of the query cannot be written for {engine}", hint=_HINT) from None


def _prove(text: str, engine: EngineName, names: set[str]) -> None:
    """Read the SQL that will run once more: it must pass the gate itself, and read from nothing but what it may."""
    try:
        (again,) = sqlglot.parse(text, read=engine, error_level=ErrorLevel.IMMEDIATE)
    except (SqlglotError, RecursionError, ValueError):
        raise QueryRefused("unwritable", "the query cannot be written back", hint=_HINT) from None
    if not isinstance(again, exp.Query) or _written(again, engine) != text:
        raise QueryRefused("unwritable", "the query cannot be written back", hint=_HINT)
    Checking(engine, text, own_names=True).check(again)
    for table in named_tables(again):
        if definition(table) is None and table.name not in names:
            raise QueryRefused("relation", "the query reads from more than it may", hint=_HINT)
