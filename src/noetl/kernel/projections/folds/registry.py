"""The folds a process runs: the built-in ones and the user's business objects, each projection once."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.errors import InputError
from noetl.kernel.projections.folds.business_object import PREFIX
from noetl.kernel.projections.folds.execution import EXECUTION
from noetl.kernel.projections.folds.fold import Fold
from noetl.kernel.projections.folds.frame import FRAME
from noetl.kernel.projections.folds.loop import FANOUT, LOOP
from noetl.kernel.projections.folds.stage import STAGE

ALL = "all"


def built_in_folds() -> tuple[Fold, ...]:
    """Return the folds every ledger has."""
    return (EXECUTION, STAGE, FRAME, LOOP, FANOUT)


class FoldRegistry:
    """An explicit collection of folds; starts with the built-in ones unless told otherwise."""

    def __init__(self, folds: Iterable[Fold] | None = None) -> None:
        self._folds: dict[str, Fold] = {}
        for fold in built_in_folds() if folds is None else folds:
            self.add(fold)

    def add(self, fold: object) -> Fold:
        """Add a fold; what is no fold, or claims a projection that is taken, is refused."""
        if not isinstance(fold, Fold):
            raise InputError(f"{fold!r} is not a fold", hint="decorate the function with @business_object(...)")
        if fold.projection in self._folds:
            raise InputError(f"there are two folds for projection {fold.projection!r}; give one another name")
        self._folds[fold.projection] = fold
        return fold

    def folds(self) -> tuple[Fold, ...]:
        """Return all folds in the order they were added."""
        return tuple(self._folds.values())

    def select(self, projection: str) -> tuple[Fold, ...]:
        """Return the folds a name stands for: one projection, `business_object` for all of those, or `all`."""
        if projection == ALL:
            return self.folds()
        found = tuple(
            fold for name, fold in self._folds.items() if name == projection or name.startswith(f"{projection}/")
        )
        if not found and projection != PREFIX.rstrip("/"):
            raise InputError(f"there is no projection {projection!r}; there are {', '.join([*self._folds, ALL])}")
        return found
