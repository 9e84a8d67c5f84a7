"""Folds and upcasters on their way to executors: the very objects a process runs go in, bytes come out, and back.

The user's own modules travel by their code, since executors of a cluster need not have them; installed ones by name.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from noetl.kernel.projections.folds.fold import EVERY_TYPE, Fold
from noetl.kernel.projections.folds.registry import built_in_folds
from noetl.kernel.projections.upcast import Upcasters

_OURS = ("noetl", "pyspark_noetl")


def packed(folds: tuple[Fold, ...], upcasters: Upcasters) -> bytes:
    """Return folds and upcasters as bytes."""
    cloudpickle = _cloudpickle()
    own = list(_own_modules())
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        data: bytes = cloudpickle.dumps(([_named(fold) for fold in folds], upcasters))
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)
    return data


def unpacked(data: bytes) -> tuple[tuple[Fold, ...], Upcasters]:
    """Return the folds and upcasters that `packed` wrote."""
    folds, upcasters = _cloudpickle().loads(data)
    ours = {fold.projection: fold for fold in built_in_folds()}
    return tuple(ours[fold] if isinstance(fold, str) else _made_whole(fold) for fold in folds), upcasters


def is_ours(fold: Fold) -> bool:
    """Tell whether a fold is one that every ledger has."""
    return any(fold is one for one in built_in_folds())


def _cloudpickle() -> Any:
    from pyspark import cloudpickle

    return cloudpickle


def _named(fold: Fold) -> Fold | str:
    return fold.projection if is_ours(fold) else fold


def _made_whole(fold: Fold) -> Fold:
    """Put back what is known by identity and not by value."""
    types, ends = (EVERY_TYPE if one == EVERY_TYPE else one for one in (fold.event_types, fold.ends_with))
    return replace(fold, event_types=types, ends_with=ends)


def _own_modules() -> Iterator[ModuleType]:
    """Yield the modules that lie in the project's directory and are no installed package."""
    project = Path.cwd()
    installed = [Path(path) for path in sysconfig.get_paths().values()]
    for name, module in list(sys.modules.items()):
        place: Any = getattr(module, "__file__", None)
        if place is None or name == "__main__" or name.partition(".")[0] in _OURS:
            continue
        path = Path(place).absolute()
        if path.is_relative_to(project) and not any(path.is_relative_to(one) for one in installed):
            yield module
