"""Threads for clients that block on other parties: few for each organization, and none that anybody else waits for.

The event loop's own threads also look hosts up, read files and answer webhooks: one that hangs there is missed by all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from noetl.model.stream import Scope

T = TypeVar("T")

TOGETHER: Final = 4
"""Calls of one organization at a time; further ones wait for these."""
_THREADS: Final = ThreadPoolExecutor(32, "noetl-outgoing")
_Places = WeakValueDictionary[Scope | None, asyncio.Semaphore]
_PLACES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Places]] = WeakKeyDictionary()


async def waited(scope: Scope | None, call: Callable[[], T]) -> T:
    """Do what blocks for an organization, in a thread; a thread goes on to its own end, whoever stops waiting for it."""
    loop = asyncio.get_running_loop()
    places = _PLACES.setdefault(loop, WeakValueDictionary())
    place = places.get(scope)
    if place is None:
        place = places[scope] = asyncio.Semaphore(TOGETHER)
    await place.acquire()
    try:
        ended = loop.run_in_executor(_THREADS, call)
    except BaseException:
        place.release()
        raise
    ended.add_done_callback(lambda _: place.release())
    return await asyncio.shield(ended)
