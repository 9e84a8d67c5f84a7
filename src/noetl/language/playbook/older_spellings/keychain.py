"""Older keychain entries, and the older call `token(name)`: today's entries come out, one for each credential."""

from __future__ import annotations

import re
from typing import Final

from noetl.language.grammar.problems import Problems, Say
from noetl.language.grammar.tree import Node
from noetl.language.playbook.older_spellings.template_names import gives, with_calls, with_texts
from noetl.language.playbook.template_uses import line_of, place_in
from noetl.language.templates.template import is_template

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


_WORD: Final = "token"
_PARTS: Final = ("workbook", "workflow")


def with_tokens(root: Node, say: Say) -> Node:
    """Return a playbook whose templates read `keychain.<entry>.token` where they called `token(name)`."""
    if gives(root, _WORD):
        return root
    entries: dict[str, Node] = {}

    def read(text: Node) -> Node:
        source = text.text
        if source is None or f"{_WORD}(" not in source or not is_template(source):
            return text
        place = place_in(text, line_of(source, f"{_WORD}("))

        def called(argument: str) -> str:
            name = f"token_of_{re.sub(r'[^A-Za-z0-9_]+', '_', argument.strip(chr(34) + chr(39)))}"
            quoted = argument[0] in "\"'"
            auth = argument[1:-1] if quoted else f"{{{{ {argument} }}}}"
            hint = f'write keychain: [{{name: {name}, kind: token, auth: "{auth}"}}] and keychain.{name}.token'
            say(f"{_WORD}()", hint, place)
            entries[name] = Node(
                {"name": Node(name, place), "kind": Node("token", place), "auth": Node(auth, place)}, place
            )
            return f"keychain.{name}.token"

        return with_calls(text, _WORD, called)

    for key in _PARTS:
        part = root.get(key)
        if part is not None:
            root = root.with_entry(key, with_texts(part, read), root.key_place(key))
    return _with_entries(root, entries)


def _with_entries(root: Node, entries: dict[str, Node]) -> Node:
    if not entries:
        return root
    keychain = root.get("keychain")
    given = [] if keychain is None else keychain.items
    known = {name.text for entry in given if (name := entry.get("name")) is not None}
    added = [entry for name, entry in entries.items() if name not in known]
    place = root.place if keychain is None else keychain.place
    return root.with_entry("keychain", Node([*given, *added], place))
