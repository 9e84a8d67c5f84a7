"""Lineage of datasets at a mark: which jobs read what, and which columns come from which. Nothing is written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import NotFound
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.lineage import Edge, How, Lineage
from noetl.model.mark import Mark
from noetl.model.payload_ref import PayloadRef
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.history import EventReader, positions, serving
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.pipelines.catalog.datasets.rows import Served, read_served
from noetl.pipelines.plan import identity

_JOBS: Final = """
SELECT j.dag, j.name, j.operator, j.input_datasets::text[] AS inputs, j.output_datasets::text[] AS outputs
FROM noetl.job AS j WHERE j.dag_version_id = ANY ($1::uuid[]) ORDER BY j.dag, j.name
"""
_NAMES: Final = "SELECT dataset_uuid::text AS dataset_uuid, name FROM noetl.dataset"
_TOLD: Final = """
SELECT version, how, reason, columns_ref FROM noetl.dataset_lineage WHERE dataset_version = $1 ORDER BY version DESC
"""
_EDGES: Final = """
SELECT output_column, input_dataset_uuid::text AS input_dataset_uuid, input_column, kind
FROM noetl.column_lineage WHERE dataset_version = $1 AND version = $2 ORDER BY place
"""
_edges = msgspec.json.Decoder(tuple[Edge, ...])


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset, what builds it and of what."""

    dataset_uuid: str
    name: str
    dataset_version: str
    dag: str
    job: str
    operator: str
    inputs: tuple[str, ...]


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """All datasets that served readers at a mark, by their ids."""

    made: dict[str, Made]
    names: dict[str, str]
    mark: Mark

    def name(self, dataset_uuid: str) -> str:
        """Return what a dataset was called, also one that served nobody."""
        return self.names.get(dataset_uuid, dataset_uuid)

    def readers(self, dataset_uuid: str) -> list[Made]:
        """Return the datasets that were made of one."""
        return [one for one in self.made.values() if dataset_uuid in one.inputs]


class Subject(msgspec.Struct, frozen=True):
    """What was asked about: a dataset, or one of its columns."""

    dataset_uuid: str
    name: str
    column: str | None = None


class LineageReader:
    """The lineage of one organization."""

    def __init__(self, scope: Scope, database: Database, payloads: PayloadStore, history: EventReader) -> None:
        self._scope = scope
        self._database = database
        self._payloads = payloads
        self._history = history
        self._datasets = Datasets(database, payloads, history)

    async def subject(self, text: str, mark: Mark) -> Subject:
        """Read DATASET or DATASET.COLUMN."""
        try:
            found = await self._datasets.find(self._scope, text, mark)
            return Subject(found.dataset_uuid, found.name)
        except NotFound as missing:
            name, dot, column = text.rpartition(".")
            if not dot:
                raise
            try:
                found = await self._datasets.find(self._scope, name, mark)
            except NotFound:
                raise missing from None
        generation = await self._datasets.current_generation(self._scope, found, mark)
        schema = await self._datasets.schema(self._scope, generation.dataset_version, mark) if generation else ()
        columns = [one.name for one in schema]
        if column not in columns:
            near = get_close_matches(column, columns, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(columns) or 'no columns yet'}"
            raise NotFound(f"dataset {name} has no column {column}", hint=hint)
        return Subject(found.dataset_uuid, found.name, column)

    async def graph(self, mark: Mark) -> Graph:
        """Return which dataset is made of which."""
        async with self._database.transaction(self._scope) as connection:
            served = await read_served(connection, await serving(connection, self._scope, mark))
            jobs = await connection.fetch(_JOBS, [one.dag_version_id for one in served])
            names = {row["dataset_uuid"]: row["name"] for row in await connection.fetch(_NAMES)}
        names |= {dataset: name for one in served for name, dataset in one.publish.items()}
        pointers = {dataset: version for one in served for dataset, version in _own(one, jobs).items()}
        made = {
            dataset: Made(
                dataset_uuid=dataset,
                name=names.get(dataset, dataset),
                dataset_version=pointers[dataset],
                dag=job["dag"],
                job=job["name"],
                operator=job["operator"],
                inputs=tuple(job["inputs"]),
            )
            for job in jobs
            for dataset in job["outputs"]
            if dataset in pointers
        }
        return Graph(made=made, names=names, mark=mark)

    async def lineage(self, dataset_version: str, mark: Mark | None = None) -> Lineage | None:
        """Return what was known at a mark of where a generation comes from; None before its first commit."""
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_TOLD, dataset_version)
        if mark is not None and rows:
            stream = identity.dataset_stream(self._scope, dataset_version)
            wanted = [(stream.stream_id, row["version"]) for row in rows]
            placed = await positions(self._database, self._history, self._scope, [stream], wanted, mark)
            last = mark.positions[stream.shard]
            rows = [row for row in rows if placed[stream.stream_id, row["version"]] <= last]
        return await self._read(dataset_version, rows[0]) if rows else None

    async def _read(self, dataset_version: str, row: Any) -> Lineage:
        how: How = row["how"]
        if row["columns_ref"] is not None:
            ref = msgspec.convert(orjson.loads(row["columns_ref"]), PayloadRef)
            return Lineage(how, _edges.decode(await self._payloads.fetch(self._scope, ref)), row["reason"])
        async with self._database.transaction(self._scope) as connection:
            edges = await connection.fetch(_EDGES, dataset_version, row["version"])
        return Lineage(how, tuple(Edge(*edge.values()) for edge in edges), row["reason"])


def _own(served: Served, jobs: list[Any]) -> dict[str, str]:
    """Return the generations of what a DAG itself makes: what it reads of others has theirs."""
    own = {dataset for job in jobs if job["dag"] == served.dag for dataset in job["outputs"]}
    return {dataset: version for dataset, version in served.pointers.items() if dataset in own}
