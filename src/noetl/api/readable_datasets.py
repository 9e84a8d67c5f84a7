"""Datasets as a caller may read them: a name and a point go in, what stood there comes out, or a refusal."""

from __future__ import annotations

from collections.abc import Collection

from noetl.api.endpoint import Call
from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization
from noetl.model.mark import Mark
from noetl.pipelines.catalog.datasets.rows import Dataset
from noetl.pipelines.datasets.dataset_reader import DatasetReader, Seen
from noetl.services.query.access import Asker, denied, readable


def asker_of(call: Call) -> Asker:
    """Return the caller as whoever asks for rows of datasets."""
    caller = call.caller
    return Asker(scope=caller.scope, name=caller.name, admin="admin" in caller.roles, token_id=caller.token_id)


def reader_of(call: Call) -> DatasetReader:
    """Return what reads the datasets of the caller's organization."""
    call.pipelines()
    services = call.services
    return DatasetReader(call.scope, services.database, services.payloads, services.history)


async def mark_of(call: Call, point: str | None) -> Mark:
    """Return the mark of a time, an event id or a mark as text; without one, of what stands now."""
    services = call.services
    as_of = HEAD if point is None else AsOf.parse(point)
    return await resolve_organization(services.history, services.database, call.scope, as_of)


async def readable_by(call: Call, datasets: Collection[str]) -> frozenset[str]:
    """Return those of some datasets that the caller may read, by id."""
    async with call.services.database.transaction(call.scope) as connection:
        return await readable(connection, asker_of(call), sorted(datasets))


async def check_readable(call: Call, dataset: Dataset) -> None:
    """Refuse whoever may not read a dataset, also what it is made of."""
    if dataset.dataset_uuid not in await readable_by(call, {dataset.dataset_uuid}):
        raise denied(dataset.name)


async def seen_by(call: Call, name: str, generation: str | None, point: str | None) -> Seen:
    """Fix what the caller sees of a dataset: one generation at a point, the served one and now unless told."""
    reader, mark = reader_of(call), await mark_of(call, point)
    await check_readable(call, await reader.datasets.find(call.scope, name, mark))
    return await reader.seen(name, generation, mark)
