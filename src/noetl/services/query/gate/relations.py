"""What a query reads from: a checked tree goes in, and each relation comes out as a query of the tree's own or a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

OWN = "__noetl_"
"""How the names begin that the gate gives; no query may use such a name itself."""


def folded(name: str) -> str:
    """Return a name as engines compare them: without regard to case, quoted or not."""
    return name.casefold()


def named_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Give the relations that are read by name."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            yield table


def definition(table: exp.Table) -> exp.CTE | None:
    """Return the WITH query that a relation's name means where it stands; None if it means a dataset."""
    wanted = folded(table.name)
    inside: exp.Expr = table
    above = table.parent
    while above is not None:
        if isinstance(above, exp.With):
            # A query of WITH sees those before it, never itself.
            known = above.expressions[: _place(above, inside)]
        else:
            clause = above.args.get("with_")
            known = [] if clause is None or clause is inside else clause.expressions
        for one in reversed(known):
            if folded(one.alias) == wanted:
                return one if isinstance(one, exp.CTE) else None
        inside, above = above, above.parent
    return None


def rename(tree: exp.Expr, datasets: Mapping[str, str]) -> None:
    """Let every relation be read under a name of our own; what it was called stays as its alias."""
    names = {id(one): f"{OWN}with_{number}" for number, one in enumerate(tree.find_all(exp.CTE))}
    tables = [(table, definition(table)) for table in named_tables(tree)]
    for table, defined in tables:
        fixed = datasets[folded(table.name)] if defined is None else names[id(defined)]
        if not table.alias:
            given = table.args.get("alias")
            columns = given.args.get("columns") if given is not None else None
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True), columns=columns))
        table.set("this", exp.to_identifier(fixed, quoted=True))
    for one in tree.find_all(exp.CTE):
        one.args["alias"].set("this", exp.to_identifier(names[id(one)], quoted=True))


def _place(clause: exp.With, inside: exp.Expr) -> int:
    return next((place for place, one in enumerate(clause.expressions) if one is inside), 0)
