"""Playbooks ready for deciding and running: a version goes in, its plan comes out; each version is read once per process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from weakref import WeakValueDictionary

from noetl.catalog.evaluating import Evaluating
from noetl.model.stream import Scope
from noetl.plan.planned import USUAL, LoopDefaults, Plan
from noetl.playbook.model import Playbook
from noetl.playbook.parse import parse

KEPT_PLANS = 256
"""Playbooks kept ready in memory."""


class Plans:
    """The plans of one process, by organization and version. Catalogs of the process share them."""

    def __init__(self, kinds: Collection[str] = (), defaults: LoopDefaults = USUAL) -> None:
        self.kinds = frozenset(kinds)
        """The kinds of tasks that this process has tools for, beside those of the language."""
        self.evaluating = Evaluating()
        """Where this process reads and evaluates what users wrote."""
        self._defaults = defaults
        self._kept: OrderedDict[tuple[Scope, str], Plan] = OrderedDict()
        self._reading: WeakValueDictionary[tuple[Scope, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, scope: Scope, catalog_id: str, text: Callable[[], Awaitable[str]]) -> Plan:
        """Return the plan of a version, from memory when it was used lately, else from its text."""
        key = (scope, catalog_id)
        if (found := self._used(key)) is not None:
            return found
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.Lock()
        # Steps of one execution ask at the same time: the first reads, the others wait for it.
        async with reading:
            if (found := self._used(key)) is not None:
                return found
            source = await text()
            # Reading a large playbook takes a while, in which others must be served.
            plan = await self.evaluating.beside(
                scope, lambda: Plan(parse(source, kinds=self.kinds).playbook, self._defaults)
            )
            return self._remember(scope, catalog_id, plan)

    async def keep(self, scope: Scope, catalog_id: str, playbook: Playbook) -> Plan:
        """Remember the plan of a playbook that was read already."""
        plan = await self.evaluating.beside(scope, lambda: Plan(playbook, self._defaults))
        return self._remember(scope, catalog_id, plan)

    def _remember(self, scope: Scope, catalog_id: str, found: Plan) -> Plan:
        """Keep a plan; the one used longest ago goes if there are too many."""
        self._kept[scope, catalog_id] = found
        self._kept.move_to_end((scope, catalog_id))
        if len(self._kept) > KEPT_PLANS:
            self._kept.popitem(last=False)
        return found

    def _used(self, key: tuple[Scope, str]) -> Plan | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found
