"""Datasets for readers: what there is, its builds, partitions and columns, its first rows, and who may read it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from noetl.api.endpoint import ADMINS, READERS, Call, Routes
from noetl.api.problems import TooLarge
from noetl.api.readable_datasets import check_readable, readable_by, reader_of, seen_by
from noetl.api.wire import NO_NUL, Body, Name, Point, Text, View, combined
from noetl.errors import InputError, NotFound
from noetl.model.dataset import Field
from noetl.pipelines.catalog.datasets.rows import Dataset, PartitionView, PublicGeneration
from noetl.pipelines.datasets.dataset_reader import ListedDataset, Use
from noetl.pipelines.datasets.first_rows import first_rows, json_value, wanted_values
from noetl.pipelines.tables.column_types import schema_of
from noetl.services.query.access import Readers, readers_of

routes = Routes("datasets")


class DatasetsQuery(Body, frozen=True, kw_only=True):
    """Which datasets to list."""

    cursor: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    published: bool = False
    """Only those that are published under a name."""


class SeenQuery(Body, frozen=True, kw_only=True):
    """Which generation, and as of when: what readers have now unless told."""

    generation: Name | None = None
    as_of: Point | None = None


class PartitionsQuery(SeenQuery, frozen=True, kw_only=True):
    """Which partitions to list."""

    cursor: Annotated[str, Meta(min_length=1, max_length=10_000, pattern=NO_NUL)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class HeadQuery(SeenQuery, frozen=True, kw_only=True):
    """Which rows to give; `where` is COLUMN=VALUE and may be given several times."""

    rows: Annotated[int, Meta(ge=1, le=1_000)] = 20
    where: Text | None = None


class DatasetPage(View, frozen=True, kw_only=True):
    """Datasets by name; `next_cursor` is null on the last page."""

    datasets: list[ListedDataset]
    next_cursor: str | None


class SchemaView(View, frozen=True, kw_only=True):
    """The columns of a generation; none before its first commit."""

    dataset_version: str
    columns: tuple[Field, ...]
    as_of: str


class SeenView(View, frozen=True, kw_only=True):
    """One generation of a dataset, fixed: asked for again with the same `as_of`, it is the same."""

    dataset: Dataset
    dataset_version: str
    partition_by: tuple[str, ...]
    columns: tuple[Field, ...]
    partitions: int
    rows: int
    bytes: int
    checksum: str
    as_of: str
    readers: list[str]
    """The roles that read it; none where the whole organization does."""


class ReaderRequest(Body, frozen=True, kw_only=True):
    """Which role is meant."""

    role: Name


class ReadersRequest(Body, frozen=True, kw_only=True):
    """Which role is meant, or all of them."""

    role: Name | None = None
    all: bool = False


class ReadersView(View, frozen=True, kw_only=True):
    """The roles that read a dataset; none where the whole organization does."""

    dataset: Dataset
    readers: list[str]


class GenerationView(PublicGeneration, frozen=True, kw_only=True):
    """One build of a dataset, and what it is used for."""

    use: Use
    dag_versions: tuple[str, ...]


class GenerationList(View, frozen=True, kw_only=True):
    """Every build of a dataset, the newest first."""

    dataset: Dataset
    generations: list[GenerationView]


class PartitionPage(View, frozen=True, kw_only=True):
    """Partitions by key; `next_cursor` is null on the last page."""

    dataset_version: str
    partitions: Sequence[PartitionView]
    as_of: str
    next_cursor: str | None


class HeadView(SchemaView, frozen=True, kw_only=True):
    """The first rows of a dataset; numbers that JSON lacks, times and bytes are text."""

    rows: list[dict[str, Any]]
    checksum: str


@routes.get("/api/datasets", READERS)
async def list_datasets(call: Call, query: DatasetsQuery) -> DatasetPage:
    """List datasets by name, with what readers find in them now."""
    listed = await reader_of(call).listed(published_only=query.published)
    allowed = await readable_by(call, [one.dataset.dataset_uuid for one in listed])
    readable = [one for one in listed if one.dataset.dataset_uuid in allowed]
    after = [one for one in readable if query.cursor is None or one.dataset.name > query.cursor]
    after.sort(key=lambda one: one.dataset.name)
    page = after[: query.limit]
    return DatasetPage(
        datasets=page,
        next_cursor=page[-1].dataset.name if len(after) > len(page) else None,
    )


@routes.get("/api/datasets/{name}", READERS)
async def get_dataset(call: Call, name: str, query: SeenQuery) -> SeenView:
    """Return what readers see of a dataset, by its published name, by `dag.job.output` or by its id."""
    seen = await seen_by(call, name, query.generation, query.as_of)
    async with call.services.database.transaction(call.scope) as connection:
        readers = await readers_of(connection, [seen.view.dataset.dataset_uuid])
    return combined(
        SeenView,
        seen.view,
        seen.generation,
        columns=seen.schema,
        partitions=len(seen.view.partitions),
        bytes=sum(part.bytes for part in seen.view.partitions),
        as_of=seen.mark.token(),
        readers=list(readers.get(seen.view.dataset.dataset_uuid, ())),
    )


@routes.post("/api/datasets/{name}/grant", ADMINS, repeatable=True)
async def grant_dataset(call: Call, name: str, body: ReaderRequest) -> ReadersView:
    """Let the holders of a role read a dataset; with the first role nobody else but administrators may."""
    dataset = await reader_of(call).datasets.find(call.scope, name)
    roles = await _readers(call).grant(call.scope, dataset, body.role, call.caller.name)
    return ReadersView(dataset=dataset, readers=list(roles))


@routes.post("/api/datasets/{name}/revoke", ADMINS, repeatable=True)
async def revoke_dataset(call: Call, name: str, body: ReadersRequest) -> ReadersView:
    """Take a dataset from the holders of a role, or, with `all`, let the whole organization read it again."""
    dataset = await reader_of(call).datasets.find(call.scope, name)
    readers = _readers(call)
    if (body.role is None) != body.all:
        raise InputError("give a role, or all")
    if body.role is None:
        roles = await readers.open_to_all(call.scope, dataset, call.caller.name)
    else:
        roles = await readers.revoke(call.scope, dataset, body.role, call.caller.name)
    return ReadersView(dataset=dataset, readers=list(roles))


@routes.get("/api/datasets/{name}/generations", READERS)
async def list_generations(call: Call, name: str) -> GenerationList:
    """List every build of a dataset, the newest first, with what it is used for."""
    reader = reader_of(call)
    dataset = await reader.datasets.find(call.scope, name)
    await check_readable(call, dataset)
    return GenerationList(
        dataset=dataset,
        generations=[combined(GenerationView, one.generation, one) for one in await reader.builds(dataset)],
    )


@routes.get("/api/datasets/{name}/partitions", READERS)
async def list_partitions(call: Call, name: str, query: PartitionsQuery) -> PartitionPage:
    """List the partitions of a dataset by key."""
    seen = await seen_by(call, name, query.generation, query.as_of)
    parts = sorted(seen.view.partitions, key=lambda part: part.partition_key)
    after = [part for part in parts if query.cursor is None or part.partition_key > query.cursor]
    page = after[: query.limit]
    return PartitionPage(
        dataset_version=seen.generation.dataset_version,
        partitions=page,
        as_of=seen.mark.token(),
        next_cursor=page[-1].partition_key if len(after) > len(page) else None,
    )


@routes.get("/api/datasets/{name}/schema", READERS)
async def get_dataset_schema(call: Call, name: str, query: SeenQuery) -> SchemaView:
    """Return the columns of a dataset."""
    seen = await seen_by(call, name, query.generation, query.as_of)
    return SchemaView(dataset_version=seen.generation.dataset_version, columns=seen.schema, as_of=seen.mark.token())


@routes.get("/api/datasets/{name}/head", READERS)
async def get_dataset_head(call: Call, name: str, query: HeadQuery) -> HeadView:
    """Return the first rows of a dataset, or of those that meet all conditions."""
    lake, most = call.services.lake, call.services.max_payload_bytes
    seen = await seen_by(call, name, query.generation, query.as_of)
    if lake is None:
        raise NotFound("this server does not reach the files of datasets", hint="configure its lake")
    schema = schema_of(seen.schema)
    wanted = wanted_values(call.request.query_params.getlist("where"), schema)
    parts = await reader_of(call).files(seen)
    table = await asyncio.to_thread(first_rows, lake, parts, schema, wanted, query.rows)
    if table.nbytes > most:
        raise TooLarge(
            f"these rows have {table.nbytes} bytes, and this server gives {most} at once", hint="ask for fewer"
        )
    rows = [json_value(row) for row in table.to_pylist()]
    return combined(HeadView, seen.view, seen.generation, columns=seen.schema, rows=rows, as_of=seen.mark.token())


def _readers(call: Call) -> Readers:
    services = call.services
    return Readers(services.database, services.ledger, services.mint_several, services.producer)
