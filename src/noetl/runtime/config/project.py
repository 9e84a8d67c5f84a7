"""Finds the project a command belongs to: a directory goes in, the nearest one at or above it that is a project comes out.

A project is a directory with a home (`.noetl/`) or a settings file (`noetl.yaml`). Where there is none, the directory itself
is the project to be.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME: Final = ".noetl"
FILE: Final = "noetl.yaml"


@dataclass(frozen=True)
class Project:
    """Where a project is, and what made it one."""

    directory: Path
    home: Path | None
    """Its home, if it has one already."""
    file: Path | None
    """Its settings file, if it has one."""
    passed_over: tuple[Path, ...] = ()
    """What lies above and belongs to another user: whoever can write it would decide which database is used."""


def find_project(start: Path | None = None) -> Project:
    """Find the project of a directory, by default the working directory."""
    start = (start or Path.cwd()).absolute()
    passed_over: list[Path] = []
    for directory in (start, *start.parents):
        home, file = directory / HOME, directory / FILE
        there = [one for one, found in ((home, home.is_dir()), (file, file.is_file())) if found]
        foreign = [one for one in there if directory != start and not _is_ours(one)]
        passed_over += foreign
        if there and not foreign:
            return Project(
                directory, home if home in there else None, file if file in there else None, tuple(passed_over)
            )
    return Project(start, None, None, tuple(passed_over))


def _is_ours(path: Path) -> bool:
    """Tell whether nobody but the user and root could have put a file there, as Git asks of the directories above."""
    ours = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        ours.add(int(os.environ["SUDO_UID"]))
    return path.stat().st_uid in ours
