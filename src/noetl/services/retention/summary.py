"""Which files of a generation nobody can ever name, and how a plan's decisions add up for people. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from noetl.services.retention.decisions import GenerationFate
from noetl.services.retention.lake_prefix import LakeFile
from noetl.services.retention.plan import Kind, Letting, Line, Trim, Unfinished


def unfinished_line(one: Unfinished) -> Line:
    """Say what an interrupted run left to do."""
    return Line(
        kind="generations" if one.versions is None else "versions",
        subject="files of an interrupted run",
        action="remove",
        why="let go before",
        items=len(one.files),
        bytes=sum(one.files.values()),
    )


def file_lines(subject: str, fates: Sequence[FileFate]) -> list[Line]:
    """Say what becomes of the files below a prefix."""
    sums: dict[Why, tuple[int, int]] = {}
    for fate in fates:
        items, size = sums.get(fate.why, (0, 0))
        sums[fate.why] = items + 1, size + fate.file.bytes
    return [
        Line(
            kind="staging",
            subject=subject,
            action="remove" if why == GOES else "keep",
            why=why,
            items=items,
            bytes=size,
        )
        for why, (items, size) in sums.items()
    ]


def data_lines(
    fates: Sequence[GenerationFate],
    lettings: Sequence[Letting],
    trims: Sequence[Trim],
    kinds: Sequence[Kind],
    listed: Mapping[str, list[LakeFile]],
) -> list[Line]:
    """Say what becomes of generations and versions."""
    purged = {one.generation.dataset_version: one for one in lettings if one.purged}
    trimmed = {one.generation.dataset_version: one for one in trims}
    lines = []
    for fate in fates:
        one = fate.generation
        gone = purged.get(one.dataset_version)
        if "generations" in kinds:
            size = sum(file.bytes for file in listed.get(one.dataset_version, ()))
            why = fate.why if gone or fate.usable else _kept_parts(fate)
            lines.append(
                Line(
                    kind="generations",
                    subject=one.dataset,
                    action="remove" if gone else "keep",
                    why=why,
                    items=1,
                    bytes=size,
                )
            )
        if "versions" in kinds and gone is None:
            lines += [
                Line(
                    kind="versions",
                    subject=one.dataset,
                    action="keep",
                    why=version.why,
                    items=1,
                    bytes=version.version.bytes,
                )
                for version in fate.versions
                if version.kept
            ]
            trim = trimmed.get(one.dataset_version)
            if trim is not None:
                lines.append(
                    Line(kind="versions", subject=one.dataset, action="remove", why=trim.reason,
                         items=len(trim.versions), bytes=sum(trim.files.values()))
                )  # fmt: skip
    return lines


def _kept_parts(fate: GenerationFate) -> str:
    """Say why a generation that cannot serve again is not purged."""
    return next((f"{one.why} in part" for one in fate.versions if one.kept), fate.why)


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
