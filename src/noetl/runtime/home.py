"""What there is to say of the home of a project: why it is this directory, and what it holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from noetl.runtime.config import Loaded, load
from noetl.services.credentials.local_secrets import SERVER_FILE


@dataclass(frozen=True)
class HomeFacts:
    """The home that a command uses, as far as it can be told without making anything."""

    home: Path
    because: str
    """Why it is this directory."""
    exists: bool
    settings_file: Path | None
    database: str
    """Which database is used: the embedded one under the home, or a server of the user's own."""
    token_file: Path | None
    """Where the token of this machine is, if a server has made one."""
    passed_over: tuple[Path, ...]
    """Homes and settings files above that belong to other users."""


def tell_new_home(home: Path) -> None:
    """Say that a home was made, so that nobody looks for the data of another one in it."""
    sys.stderr.write(f"NoETL keeps its data in {home}, which is new. `noetl home` tells why it is this directory.\n")
    sys.stderr.flush()


def home_facts() -> HomeFacts:
    """Look at the home of the project that the working directory belongs to."""
    loaded = load()
    settings = loaded.settings
    home = settings.runtime.home.resolve()
    token = settings.key_directory.resolve() / SERVER_FILE
    embedded = "embedded" if (home / "postgres").exists() or (home / "postgres.location").exists() else "not made yet"
    return HomeFacts(
        home=home,
        because=_why(loaded),
        exists=home.is_dir(),
        settings_file=None if loaded.file is None else loaded.file.resolve(),
        database=embedded if settings.database.url is None else str(settings.database.url),
        token_file=token if token.is_file() else None,
        passed_over=loaded.project.passed_over,
    )


def _why(loaded: Loaded) -> str:
    origin, project = loaded.origins.get("runtime.home"), loaded.project
    here = project.directory == Path.cwd()
    if origin is not None and (here or origin.source not in (str(project.home), str(project.file))):
        return f"set by {origin}"
    if project.home is None and project.file is None:
        return "neither the working directory nor one above it has .noetl or noetl.yaml"
    marker = project.home or project.file
    assert marker is not None
    return f"{marker.name} is in {'the working directory' if here else project.directory}"
