"""The files below the prefix of one generation: listed, and deleted by name. It never leaves its organization's prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import obstore
from obstore.exceptions import BaseError

from noetl.errors import InputError, Unavailable
from noetl.model.stream import Scope
from noetl.spark.lake.storage import Lake

_AT_ONCE: Final = 500
_HINT: Final = "look at the settings of the lake: `noetl config show`"


class LakeFile(msgspec.Struct, frozen=True):
    """A file of the lake, by its path from the lake's root."""

    path: str
    bytes: int
    modified: datetime

    @property
    def about(self) -> str:
        """The file it belongs to: a checksum that Hadoop puts beside a file shares its fate."""
        folder, _, name = self.path.rpartition("/")
        if name.startswith(".") and name.endswith(".crc"):
            return f"{folder}/{name[1:-4]}"
        return self.path


class LakePrefixes:
    """The lake of one organization."""

    def __init__(self, lake: Lake, scope: Scope) -> None:
        problems = scope.problems()
        if problems:
            raise InputError("; ".join(problems))
        self._lake = lake
        self._own = f"{scope.tenant_id}/{scope.organization_id}/datasets/"

    def check(self) -> None:
        """Raise Unavailable if the lake is a directory that is not there: an unmounted one would look empty."""
        directory = self._lake.directory
        if directory is not None and not directory.is_dir():
            raise Unavailable(f"the lake {directory} is not there", hint=_HINT)

    async def files(self, location: str) -> list[LakeFile]:
        """Return the files below a generation's prefix; Unavailable if the lake does not answer."""
        prefix = self._within(location)
        found: list[LakeFile] = []
        try:
            async for page in obstore.list(self._lake.store(), prefix=prefix):
                found += [LakeFile(one["path"], one["size"], one["last_modified"]) for one in page]
        except (BaseError, OSError) as problem:
            told = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise Unavailable(f"the lake does not list {prefix}: {told}", hint=_HINT) from problem
        return found

    async def delete(self, location: str, paths: Sequence[str]) -> None:
        """Delete files of a generation; to delete what is not there is no error."""
        prefix = self._within(location)
        strangers = [path for path in paths if not path.startswith(f"{prefix}/") or ".." in path.split("/")]
        if strangers:
            raise InputError(f"{strangers[0]} is not below {prefix}")
        for start in range(0, len(paths), _AT_ONCE):
            await self._delete(list(paths[start : start + _AT_ONCE]))
        await asyncio.to_thread(self._prune, prefix, {path.rpartition("/")[0] for path in paths})

    async def _delete(self, paths: list[str]) -> None:
        try:
            await obstore.delete_async(self._lake.store(), paths)
        except FileNotFoundError:
            for path in paths:
                await self._delete_one(path)
        except (BaseError, OSError) as problem:
            told = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise Unavailable(f"the lake does not delete {paths[0]}: {told}", hint=_HINT) from problem

    async def _delete_one(self, path: str) -> None:
        try:
            await obstore.delete_async(self._lake.store(), path)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as problem:
            raise Unavailable(f"the lake does not delete {path}: {problem}", hint=_HINT) from problem

    def _prune(self, prefix: str, folders: set[str]) -> None:
        """Remove directories of attempts that are empty now; those of partitions may be about to get a file."""
        root = self._lake.directory
        if root is None:
            return
        for folder in sorted(folders, key=len, reverse=True):
            here = root / folder
            while here != root / prefix and "commit=" in here.relative_to(root / prefix).as_posix():
                if not _removed(here):
                    break
                here = here.parent

    def _within(self, location: str) -> str:
        prefix = location.rstrip("/")
        parts = prefix.split("/")
        if not location.startswith(self._own) or ".." in parts or not parts[-1].startswith("gen="):
            raise InputError(f"{location!r} is no generation below {self._own}")
        return prefix


def _removed(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True
