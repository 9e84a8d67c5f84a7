"""Curated views of all tenants, for operators alone. Each read is on record before it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from noetl.api.endpoint import OPERATORS, Call, Routes
from noetl.api.wire import Body, View, combined
from noetl.errors import NotFound
from noetl.model.catalogue.queries import CuratedEngine
from noetl.services.curated.reads import CuratedReads, Reader
from noetl.services.curated.rules import told
from noetl.services.curated.view import CuratedView

routes = Routes("curated")


class CuratedColumn(View, frozen=True, kw_only=True):
    """A field of the fact behind a view, and what becomes of it."""

    field: str
    kind: str
    rule: str


class CuratedViewView(View, frozen=True, kw_only=True):
    """A curated view as it is declared."""

    name: str
    version: int
    sentence: str
    fact: str
    columns: list[str]
    rules: list[CuratedColumn]
    days: int
    """How far back it looks, besides today."""
    least_organizations: int
    least_tenants: int
    least_rows: int
    most_of_one_tenant: float
    round_to: int
    definition_sha256: str


class CuratedList(View, frozen=True, kw_only=True):
    """The views there are."""

    views: list[CuratedViewView]


class CuratedQuery(Body, frozen=True, kw_only=True):
    """What computes the view; both engines give the same rows."""

    engine: CuratedEngine = "postgres"


class CuratedAnswer(View, frozen=True, kw_only=True):
    """Rows of a view; `withheld` says whether there are groups too small to be told."""

    read_id: str
    view: str
    version: int
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """In the order of the columns."""
    withheld: bool
    as_of: str
    since: datetime
    engine: str
    milliseconds: float


@routes.get("/api/curated", OPERATORS)
async def list_curated_views(call: Call) -> CuratedList:
    """List the curated views with their rules."""
    return CuratedList(views=[_declared(view) for view in _reads(call).views])


@routes.get("/api/curated/{name}", OPERATORS)
async def read_curated_view(call: Call, name: str, query: CuratedQuery) -> CuratedAnswer:
    """Read a curated view; an event in the operator's organization tells of it."""
    caller = call.caller
    reader = Reader(caller.scope, caller.name, caller.token_id)
    answer = await _reads(call).read(reader, name, query.engine)
    return combined(
        CuratedAnswer,
        answer,
        read_id=str(answer.read_id),
        view=answer.view.name,
        version=answer.view.version,
        as_of=answer.mark.token(),
        milliseconds=round(answer.milliseconds, 3),
    )


def _reads(call: Call) -> CuratedReads:
    if call.services.curated is None:
        raise NotFound("this server has no curated views", hint="start it with `noetl server`")
    return call.services.curated


def _declared(view: CuratedView) -> CuratedViewView:
    fields = view.fact.fields
    return CuratedViewView(
        name=view.name,
        version=view.version,
        sentence=view.sentence,
        fact=view.fact.name,
        columns=list(view.columns),
        rules=[CuratedColumn(field=name, kind=fields[name].kind, rule=told(rule)) for name, rule in view.rules.items()],
        days=view.days,
        least_organizations=view.minimum.organizations,
        least_tenants=view.minimum.tenants,
        least_rows=view.minimum.rows,
        most_of_one_tenant=view.minimum.share,
        round_to=view.round_to,
        definition_sha256=view.digest,
    )
