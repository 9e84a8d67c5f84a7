"""The user's own code, named in the settings as `module:name`: folds of business objects, upcasters and curated views."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from noetl.errors import ConfigError
from noetl.kernel.projections.folds.registry import FoldRegistry
from noetl.kernel.projections.upcast import Upcasters
from noetl.runtime.config.project import find_project

if TYPE_CHECKING:
    from noetl.services.curated.view import CuratedView


def load_folds(names: Iterable[str]) -> FoldRegistry:
    """Return the built-in folds and the user's."""
    registry = FoldRegistry()
    for name in names:
        registry.add(_named(name, "projections.business_objects"))
    return registry


def load_upcasters(names: Iterable[str]) -> Upcasters:
    """Return the upcasters the user's functions register, checked for gaps."""
    upcasters = Upcasters()
    for name in names:
        register: Callable[[Upcasters], object] = _named(name, "projections.upcasters")
        register(upcasters)
    upcasters.check()
    return upcasters


def load_curated_views(names: Iterable[str]) -> list[CuratedView]:
    """Return the user's curated views; one that would let out too much is refused as it is imported."""
    return [_named(name, "curated.views") for name in names]


def _named(name: str, setting: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{setting}: {name!r} is not of the form module:name")
    # A project's own modules lie beside its noetl.yaml, which an installed command does not look at by itself.
    here = str(find_project().directory)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ImportError as problem:
        raise ConfigError(f"{setting}: {module_name!r} cannot be imported: {problem}") from problem
    except AttributeError as problem:
        raise ConfigError(f"{setting}: {module_name!r} has no {attribute!r}") from problem
