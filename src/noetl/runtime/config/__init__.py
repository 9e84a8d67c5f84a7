"""Loads the settings: defaults, then a file, then the environment, each over the one before.

A file path and an environment go in, typed settings come out, or one error with every problem at once. Without a path the
settings are those of the project that the working directory belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from noetl.runtime.config.checks import Clash, clashes
from noetl.runtime.config.environment import read_environment
from noetl.runtime.config.file import Given, read_file
from noetl.runtime.config.problems import Origin, Path, Problem, explain, problem, refuse
from noetl.runtime.config.project import FILE, HOME, Project, find_project
from noetl.runtime.config.schema import Leaf, find
from noetl.runtime.settings.declaration import Settings

__all__ = ["Loaded", "Origin", "Problem", "load", "load_settings", "settings_file"]

_HOME = ("runtime", "home")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, where each value that was given came from, the file that was read, and the project they are for."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: FilePath | None
    project: Project


def load_settings(path: FilePath | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Load the settings from a file (or `$NOETL_CONFIG`, or the project's `noetl.yaml`) and the environment."""
    return load(path, environ).settings


def load(path: FilePath | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """Load the settings and keep where each came from; raise ConfigError with all problems in `details`."""
    environ = os.environ if environ is None else environ
    project = find_project()
    file = _file(path, environ, project)
    given, problems = read_file(file, environ) if file else ({}, [])
    if file is not None:
        _place(given, file.parent)
    referred = {name for _, origin in given.values() for name in origin.names}
    overrides, more = read_environment(environ, referred)
    given |= overrides
    if _HOME not in given and project.directory != FilePath.cwd():
        given[_HOME] = (str(project.directory / HOME), Origin(str(project.home or project.file)))
    problems += more
    settings, found = _build(given, {tuple(filter(None, one.path.split("."))) for one in problems})
    problems += found
    if problems:
        raise refuse(problems)
    return Loaded(settings, {".".join(path): origin for path, (_, origin) in given.items()}, file, project)


def settings_file() -> FilePath | None:
    """Return the file that settings are read from here, if there is one."""
    return _file(None, os.environ, find_project())


def _file(path: FilePath | None, environ: Mapping[str, str], project: Project) -> FilePath | None:
    if path is not None:
        return path
    if named := environ.get("NOETL_CONFIG"):
        return FilePath(named)
    if project.file is not None and project.directory == FilePath.cwd():
        return FilePath(FILE)
    return project.file


def _place(given: Given, directory: FilePath) -> None:
    """Make paths that a file gives relative to itself, so that it says the same wherever a command is run."""
    for path, (value, origin) in given.items():
        leaf = find(path) if isinstance(value, str) else None
        if isinstance(leaf, Leaf) and leaf.type is FilePath and not value.startswith("~"):
            given[path] = (str(directory / value), origin)


def _build(given: Given, unread: set[Path]) -> tuple[Settings, list[Problem]]:
    """Make the settings; values with problems fall back to their defaults so that the others are still checked.

    Nothing is said about settings that clash with one that has a problem itself or could not be read.
    """
    problems: list[Problem] = []
    wrong: set[Path] = set()
    sound = dict(given)
    while True:
        try:
            settings = Settings.model_validate(_nest(sound))
            break
        except ValidationError as error:
            details = error.errors(include_url=False)
        told = frozenset(wrong)
        for detail in details:
            path = tuple(part for part in detail["loc"] if isinstance(part, str))
            wrong.add(path)
            if path not in told:
                problems.append(_told(path, detail, _origin(given, path)))
            # An entry that lacks a needed setting can only be left out whole.
            gone = path[:-1] if detail["type"] == "missing" else path
            sound = {one: value for one, value in sound.items() if one[: len(gone)] != gone}
    for clash in clashes(settings):
        involved = set().union(*map(_ancestry, (clash.path, *clash.because)))
        if not involved & (wrong | unread):
            problems.append(_clash(clash, given))
    return settings, problems


def _nest(given: Given) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, (value, _) in given.items():
        above = root
        for key in path[:-1]:
            above = above.setdefault(key, {})
        if value != {}:
            above[path[-1]] = value
        else:
            above.setdefault(path[-1], {})
    return root


def _ancestry(path: Path) -> set[Path]:
    return {path[:depth] for depth in range(len(path) + 1)}


def _origin(given: Given, *paths: Path) -> Origin:
    """Give where the first of the paths that was given, or the nearest entry above it, came from."""
    above = (path[:depth] for path in paths for depth in range(len(path), 0, -1))
    return next(given[path][1] for path in above if path in given)


def _told(path: Path, detail: ErrorDetails, origin: Origin) -> Problem:
    leaf = find(path)
    message = explain(detail["type"], detail.get("ctx", {}), detail["msg"])
    value = detail["input"]
    if value is None:
        return problem(path, "must have a value", origin, "remove the line to use the default")
    if isinstance(value, str) and isinstance(leaf, Leaf) and not leaf.secret and not origin.names:
        shown = repr(value[:60])
        message = f"{message}, not {shown}" if message.startswith("must") else f"{shown} {message}"
    return problem(path, message, origin)


def _clash(clash: Clash, given: Given) -> Problem:
    origin = _origin(given, clash.path, *clash.because)
    return problem(clash.path, clash.message, origin, clash.hint)
