"""Refuses filters that older playbooks have and that can do nothing here: a template goes in, its problems come out."""

from __future__ import annotations

from typing import Final

from noetl.playbook.problems import Problems
from noetl.playbook.template_uses import Uses, line_of, place_in
from noetl.playbook.tree import Node

_INSTEAD: Final = {
    "encrypt_secret": "keep the secret as a credential, and name it in auth or read it from the keychain",
}


def check_filters(text: Node, uses: Uses, problems: Problems) -> None:
    """Note filters that are not available, and what to write instead."""
    for name in sorted(uses.filters & _INSTEAD.keys()):
        at = place_in(text, line_of(str(text.value), name))
        problems.error("filter_unavailable", f"{name} is not available in templates", at, _INSTEAD[name])
