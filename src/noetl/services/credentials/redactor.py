"""The secrets in use go in, and any value that is about to be stored or shown comes out without them.

Takes text, bytes and JSON values. Finds a secret also in base64, URL-quoted and escaped, and inside longer text.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import orjson

from noetl.services.credentials.secret import MASK, Secret

SHORTEST = 4
"""Shorter secrets are not looked for: they stand in too much text by chance."""
_SHORTEST_PART = 6
_SHORTEST_LINE = 16
_log = logging.getLogger(__name__)


class Redactor:
    """Replaces the secrets it knows; with none, giving a value back costs one test."""

    __slots__ = ("_bytes", "_forms", "_ignored", "_pattern", "_secrets")

    def __init__(self, secrets: Iterable[str | Secret] = ()) -> None:
        self._secrets: set[str] = set()
        self._ignored: set[str] = {""}
        self._pattern: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        self._forms: tuple[bytes, ...] = ()
        self.add(*secrets)

    def __repr__(self) -> str:
        return f"Redactor({len(self._secrets)} secrets)"

    def add(self, *secrets: str | Secret) -> None:
        """Look for these from now on, too."""
        new = {secret.reveal() if isinstance(secret, Secret) else secret for secret in secrets}
        new -= self._secrets | self._ignored
        short = {secret for secret in new if len(secret) < SHORTEST}
        if short:
            self._ignored |= short
            new -= short
            _log.warning("%d secrets are shorter than %d characters and are not redacted", len(short), SHORTEST)
        if not new:
            return
        self._secrets |= new
        forms = sorted(
            {form for secret in self._secrets for form in _forms(secret)}, key=lambda form: (-len(form), form)
        )
        self._pattern = re.compile("|".join(map(re.escape, forms)))
        self._forms = tuple(form.encode("utf-8", "surrogatepass") for form in forms)
        self._bytes = re.compile(b"|".join(map(re.escape, self._forms)))

    def text(self, text: str) -> str:
        """Return text without the secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def redact(self, value: Any) -> Any:
        """Return a value without the secrets; one that holds none is given back as it is."""
        if self._pattern is None or (type(value) is list and self._is_clean(value)):
            return value
        return self._redacted(value)

    def _is_clean(self, values: list[Any]) -> bool:
        """Tell whether many values can hold no secret, by one look at their JSON text; in doubt they can."""
        try:
            text = orjson.dumps(values)
        except TypeError:
            return False
        return not any(form in text for form in self._forms)

    def _redacted(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._pattern.sub(MASK, value)  # type: ignore[union-attr]
        if value is None or kind is bool:
            return value
        if kind is int or kind is float:
            # A number read from text that was a secret, such as a PIN.
            return MASK if str(value) in self._secrets else value
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple):
            items = [self._redacted(item) for item in value]
            same = all(new is item for new, item in zip(items, value, strict=True))
            return value if same else tuple(items) if kind is tuple else items
        if isinstance(value, bytes | bytearray):
            assert self._bytes is not None
            return self._bytes.sub(MASK.encode(), bytes(value))
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)  # type: ignore[union-attr]
        if isinstance(value, int | float):
            return MASK if str(value) in self._secrets else value
        return MASK if isinstance(value, Secret) else value

    def _mapping(self, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        changed = False
        made: dict[Any, Any] = {}
        for key, item in value.items():
            new_key, new = self._redacted(key), self._redacted(item)
            made[new_key] = new
            changed = changed or new is not item or new_key is not key
        return made if changed else value


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret in every form it may be stored in."""
    pieces = [secret]
    if "\n" in secret:
        # A private key is often logged or sent line by line.
        pieces += [line.strip() for line in secret.splitlines() if len(line.strip()) >= _SHORTEST_LINE]
    for piece in pieces:
        escaped = json.dumps(piece)[1:-1]
        yield from (piece, escaped, json.dumps(escaped)[1:-1], json.dumps(piece, ensure_ascii=False)[1:-1])
        yield from (repr(piece)[1:-1], html.escape(piece))
        for quoted in (
            quote(piece, safe="", errors="replace"),
            quote(piece, errors="replace"),
            quote_plus(piece, errors="replace"),
        ):
            yield from (quoted, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted))
    yield from _in_base64(secret.encode("utf-8", "surrogatepass"))


def _in_base64(secret: bytes) -> Iterator[str]:
    whole = base64.b64encode(secret).decode()
    parts = [whole, whole.rstrip("=")]
    for shift in range(3):
        # Within longer text, as in `user:password`, the characters depend on where the secret starts; those that are
        # shared with its neighbours are left off.
        encoded = base64.b64encode(b"\0" * shift + secret).decode()
        part = encoded[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6]
        if len(part) >= _SHORTEST_PART:
            parts.append(part)
    for part in parts:
        yield from (part, part.replace("+", "-").replace("/", "_"))
