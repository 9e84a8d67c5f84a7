"""Checks the files of the schema: all are listed, all are carried by a revision, and no event type is passed over."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from noetl.model.canonical import sha256_hex
from noetl.model.catalogue import rows
from noetl.runtime.postgres.migrations import SCHEMA, chapters

LOCK = "migrations/baseline.lock"
_GENERATED = re.compile(r"-- begin generated.*?-- end generated", re.DOTALL)
_CALLED = re.compile(r"noetl\.(\w+)\(")


def problems(schema: Path = SCHEMA) -> Iterator[str]:
    """Name everything that is wrong."""
    yield from _listed(schema)
    yield from _carried(schema)
    yield from _named(schema)


def _objects(schema: Path) -> list[str]:
    return sorted(str(path.relative_to(schema)) for path in schema.rglob("*.sql") if "migrations" not in path.parts)


def _listed(schema: Path) -> Iterator[str]:
    """Each file stands in the contents once."""
    listed = [str(path.relative_to(schema)) for files in chapters(schema).values() for path in files]
    yield from (f"{name}: is not in contents.txt" for name in _objects(schema) if name not in listed)
    yield from (f"contents.txt: there is no {name}" for name in sorted(set(listed) - set(_objects(schema))))
    yield from (f"contents.txt: {name} is listed twice" for name in sorted(set(listed)) if listed.count(name) > 1)


def _carried(schema: Path) -> Iterator[str]:
    """A file that is not as the baseline had it is carried by a migration.

    A table or type is carried by its name, a file of many statements by a comment that names it, since a migration has only those that
    changed (`tests/contracts/test_migrations.py` compares what comes of them), and everything else whole.
    """
    known = dict(line.split()[::-1] for line in (schema / LOCK).read_text().splitlines())
    scripts = "\n".join(path.read_text() for path in sorted((schema / "migrations/versions").glob("*.up.sql")))
    for name in _objects(schema):
        text = (schema / name).read_text()
        if known.get(name) == sha256_hex(text.encode()):
            continue
        if name.startswith(("tables/", "types/")):
            stem = rf"noetl\.{Path(name).stem}\b"
            carried = re.search(rf"((ALTER|CREATE) (TABLE|TYPE)|INDEX \w+ ON) {stem}", scripts) is not None
        else:
            carried = f"-- {name}\n" in scripts if "/" not in name else text.strip() in scripts
        if not carried:
            yield f"{name}: changed since the baseline, and no migration carries it"
    yield from (f"{LOCK}: {name} is gone" for name in sorted(known) if not (schema / name).exists())


def _named(schema: Path) -> Iterator[str]:
    """Each type is named by the function that changes its rows, and whatever is not named there raises."""
    for function in dict.fromkeys(rows.APPLIED_BY.values()):
        own = _with_called(schema, function)
        for said in rows.types_applied_by(function):
            if not any(f"'{said}'" in _rules(text) for text in own.values()):
                yield f"functions/{function}.sql: no rule names {said}, whose rows it changes"
        for name, text in own.items():
            for found in re.finditer(r"^ *ELSE\b(?! *$)(?!.*\bEND\b).*-- |^ *ELSE$\n(?! *RAISE)", text, re.MULTILINE):
                line = text[: found.start()].count("\n") + 1
                yield f"functions/{name}.sql:{line}: an ELSE stands for event types; name them, and raise otherwise"


def _rules(text: str) -> str:
    """Return a function's text without the lists that only part its types."""
    dispatch = re.compile(r"WHEN said\.event_type IN \(\s*-- begin generated.*?-- end generated", re.DOTALL)
    return dispatch.sub("", text)


def _with_called(schema: Path, function: str) -> dict[str, str]:
    """Return the text of a function and of those it calls for its rows, by name."""
    found: dict[str, str] = {}
    left = [function]
    while left:
        name = left.pop()
        file = schema / f"functions/{name}.sql"
        if name not in found and file.is_file() and re.match(r"apply_|claim_|complete_|change_|create_|put_", name):
            found[name] = file.read_text()
            left += _CALLED.findall(found[name])
    return found


def lock(schema: Path = SCHEMA) -> str:
    """Return the digests of all files as they are: only for a new baseline, which takes the place of all migrations."""
    return "".join(f"{sha256_hex((schema / name).read_bytes())}  {name}\n" for name in _objects(schema))


if __name__ == "__main__":
    if sys.argv[1:] != ["--new-baseline"]:
        sys.exit("usage: python tools/check_schema.py --new-baseline")
    (SCHEMA / LOCK).write_text(lock())
