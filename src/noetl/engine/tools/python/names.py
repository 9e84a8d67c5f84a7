"""Names that users' code finds besides its input: `json`, `args`, `context`, `ctx` and `execution_id`.

Loaded by path in interpreters that may lack NoETL, so it imports the standard library alone, and as little as it can.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def given_names(
    given: dict[str, Any],
    execution_id: str,
    ask: Callable[[list[str]], dict[str, Any]],
    listed: Callable[[], list[str]],
) -> dict[str, Any]:
    """Return the names; whatever the input calls the same comes before them."""
    context = Context({"execution_id": execution_id, **given}, ask, listed)
    return {
        "json": json,
        "args": dict(given),
        "context": context,
        "ctx": Context({}, ask, listed),  # without the input, which may call a value of its own the same
        "execution_id": execution_id,
    }


class Context(dict):  # type: ignore[type-arg]
    """The input and whatever else a parameter of `main` may ask for, each fetched when it is first looked at.

    Secrets are had by their name alone: a walk over all of it does not meet them.
    """

    def __init__(
        self, known: dict[str, Any], ask: Callable[[list[str]], dict[str, Any]], listed: Callable[[], list[str]]
    ) -> None:
        super().__init__(known)
        self._ask = ask
        self._listed = listed
        self._absent: set[str] = set()
        self._names: list[str] | None = None

    def __missing__(self, name: Any) -> Any:
        if name in self:
            return dict.__getitem__(self, name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        if not isinstance(name, str) or name in self._absent:
            return False
        self._fetch([name])
        return dict.__contains__(self, name)

    def get(self, name: Any, default: Any = None) -> Any:
        return dict.__getitem__(self, name) if name in self else default

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def keys(self) -> Any:
        return dict.fromkeys(self._all()).keys()

    def values(self) -> Any:
        return self.copy().values()

    def items(self) -> Any:
        return self.copy().items()

    def copy(self) -> dict[Any, Any]:
        names = self._all()
        self._fetch([name for name in names if not dict.__contains__(self, name)])
        return {name: dict.__getitem__(self, name) for name in names if dict.__contains__(self, name)}

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.copy())

    def _all(self) -> list[str]:
        """Return the names there are: those of the scope, and what was known or put in here."""
        if self._names is None:
            self._names = self._listed()
        return list(dict.fromkeys([*self._names, *dict.__iter__(self)]))

    def _fetch(self, names: list[str]) -> None:
        if names:
            found = self._ask(names)
            self.update(found)
            self._absent.update(name for name in names if name not in found)
