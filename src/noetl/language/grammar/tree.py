"""A YAML document as a tree that knows where everything stands. Parts are shared and never changed once made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from noetl.language.playbook.model import Place

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place; what a mapping's keys stand at is kept beside."""

    value: Scalar | list[Node] | dict[str, Node]
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    is_literal: bool = False
    """A block written with `|`: its text begins on the line after its place."""

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries of a mapping; none for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The items of a list; none for anything else."""
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str | None:
        """The text, if it is one."""
        return self.value if isinstance(self.value, str) else None

    def get(self, *path: str) -> Node | None:
        """Return what stands under a path of keys."""
        node: Node | None = self
        for key in path:
            node = None if node is None else node.mapping.get(key)
        return node

    def key_place(self, key: str) -> Place:
        """Return where a key stands."""
        return self.keys.get(key, self.place)

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def texts(self) -> Iterator[Node]:
        """Walk over every text in it."""
        if isinstance(self.value, dict):
            for node in self.value.values():
                yield from node.texts()
        elif isinstance(self.value, list):
            for node in self.value:
                yield from node.texts()
        elif isinstance(self.value, str):
            yield self

    def with_entry(self, key: str, node: Node, at: Place | None = None) -> Node:
        """Return the mapping with an entry more, or another one in its place."""
        keys = {**self.keys, key: at or self.keys.get(key, node.place)}
        return replace(self, value={**self.mapping, key: node}, keys=keys)

    def without(self, *keys: str) -> Node:
        """Return the mapping without some entries."""
        return replace(self, value={key: node for key, node in self.mapping.items() if key not in keys})

    def renamed(self, old: str, new: str) -> Node:
        """Return the mapping with one key under another name, where it stood."""
        value = {new if key == old else key: node for key, node in self.mapping.items()}
        return replace(self, value=value, keys={**self.keys, new: self.key_place(old)})

    def place_at(self, *path: str | int) -> Place:
        """Return where something stands, or the nearest thing around it.

        Items of a list go by their number or by their name: `place_at("workflow", "fetch", "tool", "get", "url")`.
        """
        node, place = self, self.place
        for key in path:
            found = node._below(key)
            if found is None:
                break
            place = node.key_place(key) if isinstance(key, str) and key in node.mapping else found.place
            node = found
        return place

    def _below(self, key: str | int) -> Node | None:
        if isinstance(key, int):
            return self.items[key] if key < len(self.items) else None
        if isinstance(self.value, list):
            named = (
                item for item in self.items for name in ("step", "name") if (at := item.get(name)) and at.value == key
            )
            return next(named, None)
        return self.get(key)
