"""Playbooks ready for deciding and running: a version goes in, its plan comes out; each version is read once per process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from weakref import WeakValueDictionary

from noetl.engine.catalog.evaluation import Evaluating
from noetl.engine.plan.planned import USUAL, LoopDefaults, Plan
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.language.playbook.parse import parse
from noetl.language.templates.bounds.cache import KeptByLength
from noetl.model.stream import Scope

KEPT_CHARACTERS = 2_000_000
"""Characters of the playbooks that are kept ready in memory: some hundred of the usual ones, two of the largest."""


class Plans:
    """The plans of one process, by organization and version. Catalogs of the process share them."""

    def __init__(self, kinds: Collection[str] = (), defaults: LoopDefaults = USUAL) -> None:
        self.kinds = frozenset(kinds)
        """The kinds of tasks that this process has tools for, beside those of the language."""
        self.evaluating = Evaluating()
        """Where this process reads and evaluates what users wrote."""
        self._defaults = defaults
        self._kept: KeptByLength[Plan] = KeptByLength(KEPT_CHARACTERS)
        self._reading: WeakValueDictionary[tuple[Scope, str], asyncio.Lock] = WeakValueDictionary()

    async def get(self, scope: Scope, catalog_id: str, text: Callable[[], Awaitable[str]]) -> Plan:
        """Return the plan of a version, from memory when it was used lately, else from its text."""
        key = (scope, catalog_id)
        if (found := self._kept.get(key)) is not None:
            return found
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.Lock()
        # Steps of one execution ask at the same time: the first reads, the others wait for it.
        async with reading:
            if (found := self._kept.get(key)) is not None:
                return found
            source = await text()
            # Reading a large playbook takes a while, in which others must be served.
            plan = await self.evaluating.beside(
                scope, lambda: Plan(parse(source, kinds=self.kinds).playbook, self._defaults)
            )
            return self._kept.keep(key, plan, len(source))

    async def keep(self, scope: Scope, catalog_id: str, checked: CheckedPlaybook) -> Plan:
        """Remember the plan of a playbook that was read already."""
        plan = await self.evaluating.beside(scope, lambda: Plan(checked.playbook, self._defaults))
        return self._kept.keep((scope, catalog_id), plan, len(checked.text))
