"""Where a value comes from, and how ways are put together: one computed of several, one behind another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from noetl.model.lineage import Kind, stronger

Origin = tuple[str | None, str | None]
"""An input and its column; no column means its rows, or all of it."""
Origins = Mapping[Origin, Kind]
"""What a value is made of, and what became of it on the way."""
NOTHING: Origins = {}


class NotUnderstood(Exception):
    """Something that cannot be followed; the message names it. Whoever catches it takes all inputs as opaque."""


def united(*some: Origins) -> Origins:
    """Return what a value is made of that may be any of these."""
    found: dict[Origin, Kind] = {}
    for one in some:
        for origin, kind in one.items():
            found[origin] = stronger(found[origin], kind) if origin in found else kind
    return found


def lifted(origins: Origins, kind: Kind) -> Origins:
    """Return origins as they are behind one more step."""
    return {origin: stronger(one, kind) for origin, one in origins.items()}


def rows_of(inputs: Iterable[str], kind: Kind) -> Origins:
    """Return origins that are inputs as a whole."""
    return dict.fromkeys(((one, None) for one in sorted(inputs)), kind)
