"""The older `token(name)`: a playbook that calls it goes in, one with an entry in its keychain per credential comes out."""

from __future__ import annotations

import re
from typing import Final

from noetl.playbook.legacy_words import gives, with_calls, with_texts
from noetl.playbook.problems import Say
from noetl.playbook.template_uses import line_of, place_in
from noetl.playbook.templates import is_template
from noetl.playbook.tree import Node

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
