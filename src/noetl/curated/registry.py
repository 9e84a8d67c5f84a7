"""The views of an installation by name: the built-in ones and those that the settings name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from noetl.curated.built_in import BUILT_IN
from noetl.curated.view import CuratedView
from noetl.errors import ConfigError, NotFound


class CuratedViews:
    """All views, each under a name of its own."""

    def __init__(self, own: Iterable[CuratedView] = ()) -> None:
        self._views: dict[str, CuratedView] = {}
        for view in (*BUILT_IN, *own):
            if not isinstance(view, CuratedView):
                raise ConfigError(f"{view!r} is no CuratedView", hint="make it with noetl.curated.view.CuratedView")
            if view.name in self._views:
                raise ConfigError(f"there are two curated views of the name {view.name}")
            self._views[view.name] = view

    def __iter__(self) -> Iterator[CuratedView]:
        return iter(self._views.values())

    def get(self, name: str) -> CuratedView:
        """Return a view by name."""
        found = self._views.get(name)
        if found is None:
            raise NotFound(f"there is no curated view {name!r}", hint=f"there are {', '.join(sorted(self._views))}")
        return found
