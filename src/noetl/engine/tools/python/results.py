"""Results as users' code meets them: mappings that also find by name what stands beside them or repeats their entries.

Loaded by path in interpreters that may lack NoETL, so it imports nothing; how entries repeat others is told by whoever
loads it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DEPTH = 3
_LOOKED_AT = 1_000
"""Items of a list that are all looked at; of a longer one the first tells for all."""


class Results:
    """Makes such results, with the rules of the playbook's templates."""

    def __init__(self, repeated_field: Callable[[Any, Any], Any], may_repeat: Callable[[Any], bool]) -> None:
        self._may_repeat = may_repeat

        class Result(dict):  # type: ignore[type-arg]
            """A result; a walk over it, its text and its JSON show its own entries alone."""

            def __init__(self, own: dict[Any, Any], more: dict[str, Any]) -> None:
                super().__init__(own)
                self._more = more

            def __missing__(self, name: Any) -> Any:
                made = repeated_field(self, name)
                if made is not None:
                    return made
                return self._more[name]

            def __contains__(self, name: object) -> bool:
                return dict.__contains__(self, name) or name in self._more or repeated_field(self, name) is not None

            def get(self, name: Any, default: Any = None) -> Any:
                return self[name] if name in self else default  # noqa: SIM401 - it would ask itself

            def __reduce__(self) -> Any:
                return dict, (dict(self),)  # other processes do not know this class

        self._result = Result

    def given(self, value: Any, depth: int = _DEPTH) -> Any:
        """Return a value with the results in it, a few levels down, made such."""
        if type(value) is dict:
            for name, part in value.items() if depth else ():
                if type(part) in (dict, list):
                    value[name] = self.given(part, depth - 1)
            return self._result(value, {}) if self._may_repeat(value) else value
        if type(value) is list and value and (len(value) <= _LOOKED_AT or self._may_repeat(value[0])):
            value[:] = [self._result(part, {}) if self._may_repeat(part) else part for part in value]
        return value

    def named(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return values that the code asked for by name; each comes with the names beside it, if it is a result."""
        return {name: self._one(value, more) for name, (value, more) in found.items()}

    def _one(self, value: Any, more: dict[str, Any] | None) -> Any:
        if more is None:
            return self.given(value)
        if type(value) is list:
            return _Listed(self.given(value), {**more, "data": value})
        if value is None or type(value) is dict:
            return self._result({} if value is None else self.given(value), {"data": value, **more})
        return value


class _Listed(list):  # type: ignore[type-arg]
    """A result that is a list; the names beside it are found as those of a mapping are."""

    def __init__(self, own: list[Any], more: dict[str, Any]) -> None:
        super().__init__(own)
        self._more = more

    def __getitem__(self, at: Any) -> Any:
        return self._more[at] if isinstance(at, str) else super().__getitem__(at)

    def get(self, name: str, default: Any = None) -> Any:
        return self._more.get(name, default)

    def __reduce__(self) -> Any:
        return list, (list(self),)
