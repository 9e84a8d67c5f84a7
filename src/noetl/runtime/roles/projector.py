"""The role `projector`: keeps projections up to date for the shards it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from noetl.kernel.projections.stores.by_type import DEFAULT
from noetl.runtime.config import load_settings
from noetl.runtime.metrics.roles import open_projector_metrics
from noetl.runtime.projections.projector import open_far_projector, open_projector, projector_name
from noetl.runtime.service import run_role
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.wiring import open_runtime


def run_projector(tell: Callable[[str], None], *, from_stream: bool) -> int:
    """Project until a signal ends the process, from the ledger or from the stream."""
    settings = load_settings()
    return run_role(lambda stopping: _running(settings, tell, from_stream=from_stream), tell)


@asynccontextmanager
async def _running(settings: Settings, tell: Callable[[str], None], *, from_stream: bool) -> AsyncIterator[None]:
    tell(f"projecting as {projector_name(settings)}")
    opened = open_far_projector if from_stream else open_projector
    async with (
        open_runtime(settings, "projector") as runtime,
        open_projector_metrics(runtime, tell, from_stream=from_stream) as (metrics, counted),
    ):

        def changed(store: str, shards: frozenset[int]) -> None:
            if store == DEFAULT:
                metrics.hold(shards)
            of = "" if store == DEFAULT else f" of {store}"
            tell(f"shards{of}: " + (" ".join(map(str, sorted(shards))) or "none"))

        async with opened(counted, changed):
            yield
