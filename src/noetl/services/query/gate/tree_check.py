"""Looks at every node of a parsed query: kinds, fields, names, literals and calls must all be known. Pure."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from noetl.services.query.errors import QueryRefused
from noetl.services.query.gate.bounds import excess
from noetl.services.query.gate.functions import KNOWN, NAMED
from noetl.services.query.gate.nodes import JOINS, JSON_KEY, NUMBER, PLAIN_NAME, SHAPES, TYPES, UNITS, WORDS
from noetl.services.query.gate.relations import OWN

DEEPEST: Final = 150
_LONGEST_NAME: Final = 255
_RELATIONS: Final = (exp.Table, exp.Subquery, exp.Values, exp.Unnest, exp.Lateral)
_MAKERS: Final = (exp.GenerateSeries, exp.Anonymous)
_ASK: Final = "ask one SELECT, or WITH … SELECT, that only reads published datasets"
_BY_NAME: Final = "name a published dataset, a query of WITH, a subquery, VALUES, UNNEST or a series"


class Checking:
    """Checks trees of one text; `own_names` lets names through that only the gate gives."""

    def __init__(self, engine: str, text: str, *, own_names: bool = False) -> None:
        self._engine = engine
        self._text = text
        self._own_names = own_names

    def check(self, tree: exp.Expr) -> None:
        """Refuse the first part that is not allowed, in the order they are written."""
        left: list[tuple[exp.Expr, int]] = [(tree, 1)]
        while left:
            node, depth = left.pop()
            if depth > DEEPEST:
                raise self.refusal("size", node, "the query is nested too deeply", "take parts apart with WITH")
            self._kind(node)
            for field, value in node.args.items():
                if value is None or value is False or value == []:
                    continue
                self._field(node, field)
                for one in reversed(value if isinstance(value, list) else [value]):
                    if isinstance(one, exp.Expr):
                        left.append((one, depth + 1))
                    else:
                        self._plain(node, field, one)

    def refusal(self, rule: str, node: exp.Expr, message: str, hint: str = _ASK) -> QueryRefused:
        """Make a refusal that names the place of a node."""
        start = _start(node)
        if start is None or self._own_names:
            return QueryRefused(rule, message, hint=hint)
        line = self._text.count("\n", 0, start) + 1
        return QueryRefused(rule, message, line=line, column=start - self._text.rfind("\n", 0, start), hint=hint)

    def _kind(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Anonymous):
            self._named_call(node)
        elif isinstance(node, exp.Func):
            if type(node).__name__ not in KNOWN:
                raise self.refusal("function", node, f"the function {_called(node)} may not be called", _CALLS)
        elif type(node).__name__ not in SHAPES:
            raise self.refusal("part", node, f"{_spoken(node)} is not part of a query that may be asked")
        self._meaning(node)
        problem = excess(node)
        if problem is not None:
            raise self.refusal("bound", node, f"{_called(node)}: {problem}", "write a smaller bound")

    def _named_call(self, node: exp.Anonymous) -> None:
        name = node.this
        makes_rows = isinstance(node.parent, exp.Table) and self._engine == "spark" and node.name.lower() == "range"
        if not isinstance(name, str) or not (name.lower() in NAMED[self._engine] or makes_rows):
            shown = str(node.name)[:60]
            raise self.refusal("function", node, f"the function {shown} may not be called", _CALLS)

    def _meaning(self, node: exp.Expr) -> None:
        match node:
            case exp.Identifier():
                self._identifier(node)
            case exp.Literal():
                self._literal(node)
            case exp.Table():
                if not isinstance(node.this, exp.Identifier | exp.GenerateSeries | exp.Anonymous):
                    raise self.refusal("relation", node, "rows are not read from there", _BY_NAME)
                if isinstance(node.this, exp.Anonymous) and node.this.name.lower() != "range":
                    raise self.refusal("relation", node, f"{node.this.name} gives no rows here", _BY_NAME)
            case exp.From() | exp.Join() if not isinstance(node.this, _RELATIONS):
                raise self.refusal("relation", node, "rows are not read from there", _BY_NAME)
            case exp.Subquery() if not isinstance(node.this, exp.Query | exp.Table | exp.Values):
                raise self.refusal("relation", node, "this is no query", _BY_NAME)
            case exp.CTE() if not isinstance(node.this, exp.Query | exp.Values):
                raise self.refusal("part", node, "WITH names queries only")
            case exp.Lateral() if node.alias and not PLAIN_NAME.fullmatch(node.alias):
                # It is written without quotes.
                raise self.refusal("name", node, "such a name is not taken here", "use letters, digits and _")
            case exp.Dot() if not isinstance(node.expression, exp.Identifier | exp.Star | exp.Literal):
                raise self.refusal("function", node, "calls have no dot before them", "write f(x), not x.f()")
            case exp.Var() if node.name.upper() not in UNITS:
                raise self.refusal("part", node, "this word has no meaning here")
            case exp.DataType() if getattr(node.this, "value", "") not in TYPES:
                raise self.refusal("type", node, "values are not cast to this type", _CASTS)
            case exp.JSONPathKey() if not (isinstance(node.this, str) and JSON_KEY.fullmatch(node.this)):
                raise self.refusal("part", node.parent or node, "such a key cannot be asked for")

    def _identifier(self, node: exp.Identifier) -> None:
        name = node.name
        own = not self._own_names and name.casefold().startswith(OWN)
        if own or not name or len(name) > _LONGEST_NAME or not name.isprintable():
            raise self.refusal("name", node, "such a name is not taken", "use another name")
        if self._engine == "spark" and (name.casefold() == "_metadata" or "${" in name):
            raise self.refusal("name", node, "such a name is not taken", "name a column of the dataset")

    def _literal(self, node: exp.Literal) -> None:
        if not node.is_string and not NUMBER.fullmatch(node.name):
            raise self.refusal("part", node, "this is no number")
        if "\x00" in node.name or (self._engine == "spark" and "${" in node.name):
            raise self.refusal("literal", node, "this text may not stand in a query", "leave out ${ and NUL")

    def _field(self, node: exp.Expr, field: str) -> None:
        allowed = SHAPES.get(type(node).__name__)
        if allowed is None or field in allowed:
            return
        if field == "db" and isinstance(node, exp.Table):
            raise self.refusal("relation", node, "datasets are read by one name, without a dot", _BY_NAME)
        if field == "recursive":
            raise self.refusal("recursive", node, "WITH RECURSIVE is not taken", "use a series, or unfold it")
        value: Any = node.args[field]
        at = value[0] if isinstance(value, list) else value
        where = at if isinstance(at, exp.Expr) and _start(at) is not None else node
        words = field.strip("_").replace("_", " ").upper()
        raise self.refusal("part", where, f"{words} is not part of a query that may be asked")

    def _plain(self, node: exp.Expr, field: str, value: object) -> None:
        """Look at what stands in a node without being one: it is written as it is."""
        if isinstance(value, bool | int) or (field == "this" and isinstance(node, _SPELLED)):
            return
        if isinstance(node, exp.Join) and str(value).upper() in JOINS:
            return
        if not isinstance(node, exp.Join) and isinstance(value, str) and WORDS.fullmatch(value):
            return
        raise self.refusal("part", node, f"{_spoken(node)} is not written in a way that may be asked")


_SPELLED: Final = (exp.Identifier, exp.Literal, exp.Var, exp.DataType, exp.Anonymous, exp.JSONPathKey)
_CALLS: Final = "aggregate, window, text, number, date, JSON and array functions may be called"
_CASTS: Final = "cast to numbers, text, dates, times, JSON, arrays, maps and structs"


def _start(node: exp.Expr | None) -> int | None:
    """Return where a node begins in the text, or the first part of it that knows, or what it is a part of."""
    while node is not None:
        known = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        if known:
            return int(min(known))
        node = node.parent
    return None


def _called(node: exp.Expr) -> str:
    return node.name.upper() if isinstance(node, exp.Anonymous) else getattr(node, "sql_name", lambda: "")()


def _spoken(node: exp.Expr) -> str:
    """Return the kind of a node as words: `TableSample` is TABLE SAMPLE."""
    name = type(node).__name__
    return "".join(f" {one}" if one.isupper() and place else one for place, one in enumerate(name)).upper()
