"""A secret as a value: it goes through scopes and calls like any other, and shows itself only when asked to by name."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, final

MASK = "***"


@final
class Secret:
    """Text that is not to be seen. `repr` is masked; text, formats, JSON, copies by pickle are refused.

    Refused rather than masked, because a mask that is sent to a server in place of a password is a failure far from
    its cause. JSON writers and canonical JSON refuse it as a type they do not know.
    """

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """Return the secret itself."""
        return self.__text

    # The sandbox of templates heeds this: only the code around a tool's call reveals.
    reveal.unsafe_callable = True  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        self._refuse("text")

    def __format__(self, spec: str) -> str:
        self._refuse("text")

    def __bool__(self) -> bool:
        return bool(self.__text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__text.encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        self._refuse("bytes")

    def _refuse(self, form: str) -> NoReturn:
        raise TypeError(f"a secret cannot become {form} here; only the call of a tool may use it")


def revealed(value: Any) -> Any:
    """Return a value of mappings and lists with its secrets in the clear, for the call of a tool alone."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(item) for item in value]
    return value


def guarded(value: Any, shown: frozenset[str] = frozenset()) -> Any:
    """Return a value with every text in it as a secret, but for those under the names in `shown`."""
    if isinstance(value, str):
        return Secret(value)
    if isinstance(value, Mapping):
        return {
            key: item if key in shown and isinstance(item, str) and not _has_password(item) else guarded(item, shown)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [guarded(item, shown) for item in value]
    return value


def secrets_in(value: Any) -> Iterator[str]:
    """Yield every secret in a value of mappings and lists."""
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)


def _has_password(text: str) -> bool:
    _, found, rest = text.partition("://")
    return bool(found) and "@" in rest
