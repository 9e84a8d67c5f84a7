"""Older spellings of keychain entries: an entry goes in, the same one in today's words comes out."""

from __future__ import annotations

from typing import Final

from noetl.playbook.problems import Problems, Say
from noetl.playbook.tree import Node

_KINDS: Final = ("secret_manager", "oauth2", "credential", "bearer", "token", "google_id_token", "static")
_OLD_KINDS: Final = {"secrets": "secret_manager"}
_NAMES_OF_AUTH: Final = ("credential", "ref", "service_account_credential")
"""Older words for the credential that an entry is had with."""
_WITH_AUTH: Final = frozenset({"credential", "bearer", "token", "oauth2", "google_id_token"})


def with_entry(entry: Node, say: Say, problems: Problems) -> Node:
    """Return a keychain entry in today's words."""
    if not isinstance(entry.value, dict):
        return entry
    entry = _kind(entry, say)
    kind = entry.get("kind")
    word = None if kind is None else kind.text
    if word in _WITH_AUTH:
        entry = _auth(entry, say, problems)
    if word == "static" and "map" in entry.mapping and "data" not in entry.mapping:
        say("map of a static entry", "write data", entry.key_place("map"))
        entry = entry.renamed("map", "data")
    return entry


def _kind(entry: Node, say: Say) -> Node:
    kind, older = entry.get("kind"), entry.get("type")
    if kind is None and older is not None and older.text is not None:
        word = _OLD_KINDS.get(older.text, older.text)
        # What is no kind of entry is the type of the credential that the entry stands for.
        word = word if word in _KINDS else "credential"
        say("type of a keychain entry", f"write kind: {word}", entry.key_place("type"))
        return entry.without("type").with_entry("kind", Node(word, older.place), entry.key_place("type"))
    if kind is not None and kind.text in _OLD_KINDS:
        word = _OLD_KINDS[kind.text]
        say(f"the keychain kind {kind.text}", f"write {word}", kind.place)
        return entry.with_entry("kind", Node(word, kind.place))
    return entry


def _auth(entry: Node, say: Say, problems: Problems) -> Node:
    for old in _NAMES_OF_AUTH:
        named, auth = entry.get(old), entry.get("auth")
        if named is None:
            continue
        at = entry.key_place(old)
        if auth is not None and auth.plain() != named.plain():
            said = f"auth and {old} name two credentials"
            problems.error("given_twice", said, at, "leave one of them out")
        say(f"{old} of a keychain entry", "write auth", at)
        entry = entry.without(old) if auth is not None else entry.renamed(old, "auth")
    return entry
