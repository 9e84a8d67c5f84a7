"""`noetl projector`: keeps projections up to date for the shards it holds, until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import click

from noetl.cli.telling import tell

if TYPE_CHECKING:
    from noetl.runtime.service import Stopping
    from noetl.runtime.settings import Settings


@click.command()
@click.option("--from-stream", is_flag=True, help="Project what the stream brings, into a database without a ledger.")
@click.pass_context
def projector(ctx: click.Context, from_stream: bool) -> None:
    """Keep projections up to date, sharing the shards with the other projectors, until SIGTERM or Ctrl-C.

    Projectors divide the shards among themselves and take over from one that falls silent for longer than
    `projections.lease_seconds`. While one lives, servers write no projections. Each has a name that stays the same when
    it is started again: the setting `runtime.shard_id`, or NOETL_SHARD_ID.

    With --from-stream it reads no ledger: events come from `event_store.connection`, and rows and checkpoints go to its
    own `database.url`, which `noetl db migrate` has prepared.

    \b
    Examples:
      noetl projector
      NOETL_SHARD_ID=noetl-projector-0 noetl projector
      NOETL_DATABASE_URL=postgresql://… noetl projector --from-stream
    """
    from noetl.runtime.config import load_settings
    from noetl.runtime.service import run_role

    settings = load_settings()

    def start(stopping: Stopping) -> AbstractAsyncContextManager[object]:
        return _running(settings, from_stream=from_stream)

    ctx.exit(run_role(start, tell))


@asynccontextmanager
async def _running(settings: Settings, *, from_stream: bool) -> AsyncIterator[None]:
    from noetl.project.stores import DEFAULT
    from noetl.runtime.projector import open_far_projector, open_projector, projector_name
    from noetl.runtime.role_metrics import open_projector_metrics
    from noetl.runtime.wiring import open_runtime

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
