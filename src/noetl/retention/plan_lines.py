"""How the decisions of a plan add up for people: what goes, what stays, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noetl.retention.lake_prefix import LakeFile
from noetl.retention.leftovers import GOES, FileFate, Why
from noetl.retention.plan import Kind, Letting, Line, Trim, Unfinished
from noetl.retention.planning import GenerationFate


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
