"""Packages that jobs declare in `config.requirements`: a list or a file beside the DAG goes in, what is not here comes out.

Nothing is installed. Who deploys is warned; who runs the job refuses it before its code is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement

from noetl.errors import InputError
from noetl.language.grammar.problems import Problem, Problems

if TYPE_CHECKING:
    from noetl.language.dag.parse import ParsedDag

_COMMENT: Final = re.compile(r"(^|\s)#.*$")
_HASHES: Final = re.compile(r"\s--hash\b.*$")
HINT: Final = "install it where the drivers run, and with a cluster pack it: noetl spark pack FILE --for dag.yaml"


def declared(config: Mapping[str, Any], read: Callable[[str], bytes | None]) -> tuple[Requirement, ...]:
    """Return the packages a job declares; a line that names none is an InputError. Options of pip are passed over."""
    told = config.get("requirements")
    if told is None:
        return ()
    lines = (read(told) or b"").decode(errors="replace").splitlines() if isinstance(told, str) else list(told)
    plain = [_HASHES.sub("", _COMMENT.sub("", line)).rstrip("\\ \t").strip() for line in lines]
    return tuple(_requirement(line) for line in plain if line and not line.startswith("-"))


def missing(wanted: Sequence[Requirement]) -> list[str]:
    """Return those that are not in this environment, each with what is there instead."""
    found = []
    for one in wanted:
        if one.marker is not None and not one.marker.evaluate():
            continue
        try:
            here = version(one.name)
        except PackageNotFoundError:
            found.append(_named(one))
            continue
        if not one.specifier.contains(here, prereleases=True):
            found.append(f"{_named(one)} ({here} is installed)")
    return found


def requirement_problems(parsed: ParsedDag, read: Callable[[str], bytes | None]) -> list[Problem]:
    """Return what is to be said about the packages of a DAG's jobs: lines that name none, and what is not here."""
    problems = Problems(parsed.file)
    for job in parsed.dag.jobs:
        place = parsed.place("jobs", job.name, "config", "requirements")
        try:
            wanted = declared(job.config, read)
        except InputError as problem:
            problems.error("requirement_invalid", f"{job.name}: {problem.message}", place, problem.hint)
            continue
        for one in missing(wanted):
            problems.warning("requirement_missing", f"{job.name} needs {one}, which is not here", place, HINT)
    return problems.in_order()


def _requirement(line: str) -> Requirement:
    try:
        return Requirement(line)
    except InvalidRequirement:
        raise InputError(f"{line!r} names no package", hint="write requirements like scikit-learn>=1.4") from None


def _named(one: Requirement) -> str:
    return f"{one.name}{one.specifier}"
