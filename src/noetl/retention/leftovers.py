"""Which files of a generation nobody can ever name: a listing and who may still commit go in, each file's fate comes out. Pure.

A file is named by a manifest, or an attempt that runs may still name it. Attempts write only after they are claimed, and
one that has lost its lease never commits, so a file that is older than every lease in force is nobody's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from noetl.retention.lake_prefix import LakeFile

CLOCKS_APART: Final = timedelta(hours=1)
"""How far the clocks of the lake and of the database may differ."""

Why = Literal["named by a kept version", "too young", "an attempt that runs may name it", "nothing names it"]
GOES: Final[Why] = "nothing names it"


class FileFate(msgspec.Struct, frozen=True):
    """A file and what becomes of it."""

    file: LakeFile
    why: Why

    @property
    def kept(self) -> bool:
        """Whether it stays."""
        return self.why != GOES


def leftovers(
    files: Sequence[LakeFile],
    named: Collection[str],
    running_since: Sequence[datetime],
    now: datetime,
    age: timedelta | None,
) -> list[FileFate]:
    """Decide about the files below one prefix; `running_since` are the starts of the attempts in force there.

    `age` None keeps everything.
    """
    oldest_lease = min(running_since, default=None)
    found = []
    for file in files:
        why: Why = GOES
        if file.about in named:
            why = "named by a kept version"
        elif age is None or now - file.modified <= age:
            why = "too young"
        elif oldest_lease is not None and file.modified >= oldest_lease - CLOCKS_APART:
            why = "an attempt that runs may name it"
        found.append(FileFate(file, why))
    return found
