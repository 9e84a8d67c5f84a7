"""The corpora of queries: blocks of a file go in, each with its line, its name and the engines it is meant for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_ENGINES = re.compile(r"\((duckdb|spark)\)\s*$")


class Asked(NamedTuple):
    """One query of a corpus."""

    name: str
    sql: str
    engine: str | None
    """The one engine it is written for; none is written for both."""


def blocks(file: str) -> list[Asked]:
    """Return the queries of a file: each after a line `-- name`, up to the next such line."""
    found: list[Asked] = []
    text = (HERE / file).read_text(encoding="utf-8").partition("\n\n")[2]
    for block in re.split(r"^-- ", text, flags=re.MULTILINE)[1:]:
        name, _, sql = block.partition("\n")
        sql = sql.strip()
        engine = _ENGINES.search(name) or _ENGINES.search(sql)
        sql = _ENGINES.sub("", sql).strip()
        found.append(Asked(_ENGINES.sub("", name).strip(), sql, engine[1] if engine else None))
    return found
