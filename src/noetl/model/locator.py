"""Locators: `noetl://` text goes in, the named parts of one addressable thing come out, and back again.

One thing has one text, so a locator can be joined on as a string. Nothing here looks whether the thing exists.

    noetl://tenant/<t>[/org/<o>[<place>][/<kind>/<id>...]]
    place: /cluster/<c>[/region/<r>][/zone/<z>][/node/<n>][/process/<p>]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn
from urllib.parse import quote, unquote_to_bytes

from noetl.errors import LocatorInvalid

SCHEME: Final = "noetl://"
PLACE: Final = ("cluster", "region", "zone", "node", "process")

_ABSENT: Final = "none"
_RESERVED: Final = frozenset({"tenant", "org", _ABSENT, *PLACE})
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_UNQUOTED: Final = "!$&'()*+,;=:@"  # with letters, digits and -._~, what a URI path segment may hold as it is
_MISENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~!$&'()*+,;=:@%]")
_HINT: Final = "the form is noetl://tenant/<tenant>/org/<org>/[cluster/<cluster>/...]<kind>/<id>"


@dataclass(frozen=True, slots=True)
class Locator:
    """The address of a tenant, an organization, a place in a cluster, or a thing of some kind in one of these."""

    tenant: str
    organization: str | None = None
    cluster: str | None = None
    region: str | None = None
    zone: str | None = None
    node: str | None = None
    process: str | None = None
    kind: str | None = None
    path: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not be printed and read back as the same locator."""
        place = [name for name in PLACE if getattr(self, name) is not None]
        if self.organization is None and (place or self.kind is not None):
            _refuse(f"a {self.kind or place[0]} belongs to an organization, and none is given")
        if place and self.cluster is None:
            _refuse(f"a {place[0]} belongs to a cluster, and none is given")
        if self.kind is None and self.path:
            _refuse(f"the id {'/'.join(self.path)!r} has no kind before it")
        if self.kind is not None and (self.kind in _RESERVED or not _KIND.fullmatch(self.kind)):
            _refuse(f"{self.kind!r} is not a kind: use a lower-case word such as execution, worker or stream")
        if self.kind is not None and not self.path:
            _refuse(f"the kind {self.kind!r} is not followed by an id")
        for text in (self.tenant, self.organization, *(getattr(self, name) for name in place), *self.path):
            if text is not None:
                _check_value(text)
        if self.kind == "payloads":
            _check_payload(self.path, in_a_place=bool(place))

    @property
    def sha256(self) -> str | None:
        """The digest, where this is the locator of a payload."""
        return self.path[1] if self.kind == "payloads" else None

    def __str__(self) -> str:
        return SCHEME + "/".join(self._segments())

    def _segments(self) -> Iterator[str]:
        yield from ("tenant", _quote(self.tenant))
        if self.organization is not None:
            yield from ("org", _quote(self.organization))
        for name in PLACE:
            value = getattr(self, name)
            if value is not None:
                yield from (name, _quote(value))
            elif self.region is not None and self.kind is not None:
                # A thing in a region names every level below it, so that all such locators have the same shape.
                yield _ABSENT
        if self.kind is not None:
            yield from (self.kind, *map(_quote, self.path))


@lru_cache(maxsize=4096)
def parse_locator(text: str) -> Locator:
    """Read a locator, or raise LocatorInvalid saying what is wrong at which segment."""
    if not text.startswith(SCHEME):
        _refuse(f"{text[:60]!r} does not start with {SCHEME}")
    segments = text.removeprefix(SCHEME).split("/")
    values = [_unquote(segment, number) for number, segment in enumerate(segments, 1)]
    parts: dict[str, str] = {}
    at = _take(segments, values, 0, "tenant", parts)
    if at < len(segments):
        at = _take(segments, values, at, "org", parts)
    if at < len(segments) and segments[at] == PLACE[0]:
        at = _take(segments, values, at, PLACE[0], parts)
        for name in PLACE[1:]:
            if at < len(segments) and segments[at] == name:
                at = _take(segments, values, at, name, parts)
            elif at < len(segments) and segments[at] == _ABSENT:
                at += 1
    kind = segments[at] if at < len(segments) else None
    if kind in _RESERVED:
        _refuse(f"{kind!r} does not belong there; the order is tenant, org, {', '.join(PLACE)}, kind", at + 1)
    try:
        return Locator(parts.pop("tenant"), parts.pop("org", None), kind=kind, path=tuple(values[at + 1 :]), **parts)
    except LocatorInvalid as error:
        _refuse(error.message, at + 1)


def _refuse(why: str, number: int | None = None) -> NoReturn:
    if number is None:
        raise LocatorInvalid(why, hint=_HINT)
    raise LocatorInvalid(f"segment {number} of the locator: {why}", hint=_HINT, segment=number)


def _take(segments: list[str], values: list[str], at: int, name: str, parts: dict[str, str]) -> int:
    """Read `<name>/<value>` and return where the next segment stands."""
    if segments[at] != name:
        _refuse(f"expected {name!r}, found {segments[at]!r}", at + 1)
    if at + 1 == len(segments):
        _refuse(f"{name!r} is not followed by a name", at + 1)
    parts[name] = values[at + 1]
    return at + 2


def _quote(text: str) -> str:
    return quote(text, safe=_UNQUOTED)


def _unquote(segment: str, number: int) -> str:
    wrong = _MISENCODED.search(segment)
    if wrong:
        character = quote(wrong[0], errors="replace")
        _refuse(f"{wrong[0]!a} in {segment!a} must be percent-encoded, as {character}", number)
    try:
        value = unquote_to_bytes(segment).decode()
        _check_value(value)
    except UnicodeDecodeError:
        _refuse(f"{segment!r} is not percent-encoded UTF-8", number)
    except LocatorInvalid as error:
        _refuse(error.message, number)
    return value


def _check_value(text: str) -> None:
    if not text:
        _refuse("a name is empty; look for a doubled or trailing slash")
    if text in (".", ".."):
        _refuse(f"{text!r} is not a name: paths would take it as a step to another folder")
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(f"{text!a} holds a lone surrogate, which is no character")


def _check_payload(path: tuple[str, ...], *, in_a_place: bool) -> None:
    if in_a_place:
        _refuse("a payload belongs to its organization, not to a place in a cluster")
    if len(path) != 2 or path[0] != "sha256" or not _SHA256.fullmatch(path[1]):
        _refuse("a payload is named payloads/sha256/<64 lower-case hexadecimal digits>")
