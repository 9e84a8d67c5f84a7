"""Where data come from: the lineage of datasets and columns, and the story of single rows. Nothing is written."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from noetl.api.endpoint import READERS, Call, Routes
from noetl.api.readable_datasets import mark_of, readable_by, seen_by
from noetl.api.wire import NO_NUL, Body, Name, Point, View
from noetl.errors import NotFound
from noetl.pipelines.datasets.lineage import LineageReader
from noetl.pipelines.datasets.lineage_tree import Direction, Follow, Leaf, datasets_in, only
from noetl.pipelines.explain.explanation import Explaining
from noetl.pipelines.explain.values import Explained
from noetl.services.query.access import denied

routes = Routes("lineage")


class LineageQuery(Body, frozen=True, kw_only=True):
    """Which way to follow, how far, and as of when."""

    direction: Direction = "upstream"
    depth: Annotated[int, Meta(ge=1, le=100)] = 20
    as_of: Point | None = None


class LineageView(View, frozen=True, kw_only=True):
    """What lies before or behind a dataset or column."""

    direction: Direction
    as_of: str
    tree: Leaf


class ExplainQuery(Body, frozen=True, kw_only=True):
    """Which rows to explain: `where` compares columns with values, joined by AND."""

    where: Annotated[str, Meta(min_length=1, max_length=4_000, pattern=NO_NUL)]
    generation: Name | None = None
    as_of: Point | None = None
    rows: Annotated[int, Meta(ge=1, le=100)] = 10


class ExplainView(View, frozen=True, kw_only=True):
    """Rows, and once each the tasks that made them."""

    dataset: str
    dataset_uuid: str
    generation: str
    where: str
    as_of: str
    rows: list[dict[str, Any]]
    makers: list[dict[str, Any]]
    files: int
    opened: int
    more: bool


@routes.get("/api/lineage/{dataset}", READERS)
async def get_lineage(call: Call, dataset: str, query: LineageQuery) -> LineageView:
    """Return what a dataset, or one of its columns (`dataset.column`), is made of, or what is made of it."""
    call.pipelines()
    services = call.services
    reader = LineageReader(call.scope, services.database, services.payloads, services.history)
    mark = await mark_of(call, query.as_of)
    subject = await reader.subject(dataset, mark)
    tree = await Follow(reader, await reader.graph(mark), query.direction, query.depth).tree(subject)
    allowed = await readable_by(call, datasets_in(tree))
    if subject.dataset_uuid not in allowed:
        raise denied(subject.name)
    return LineageView(direction=query.direction, as_of=mark.token(), tree=only(tree, allowed))


@routes.get("/api/datasets/{name}/explain", READERS)
async def explain_rows(call: Call, name: str, query: ExplainQuery) -> ExplainView:
    """Tell where rows of a dataset come from: commit, task, code, inputs, and what caused it."""
    call.pipelines()
    services = call.services
    if services.lake is None:
        raise NotFound("this server does not reach the files of datasets", hint="configure its lake")
    seen = await seen_by(call, name, query.generation, query.as_of)
    explaining = Explaining(call.scope, services.database, services.payloads, services.history, services.lake)
    found = await explaining.explain(seen, query.where, query.rows)
    return _view(found, await readable_by(call, {part.dataset_uuid for one in found.makers for part in one.inputs}))


def _view(found: Explained, allowed: frozenset[str]) -> ExplainView:
    told = msgspec.structs.asdict(found)
    rows = [json.loads(msgspec.json.encode(row, enc_hook=str)) for row in found.rows]
    makers = [
        msgspec.structs.replace(one, inputs=tuple(part for part in one.inputs if part.dataset_uuid in allowed))
        for one in found.makers
    ]
    return ExplainView(**{**told, "rows": rows, "makers": [msgspec.to_builtins(one) for one in makers]})
