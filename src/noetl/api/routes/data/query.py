"""Questions about published datasets in SQL, and the record of those that were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from starlette.responses import Response

from noetl.api import wire
from noetl.api.endpoint import ADMINS, READERS, Call, Routes
from noetl.api.problems import TooMany
from noetl.api.readable_datasets import asker_of
from noetl.api.wire import Body, Name, Point, View, combined
from noetl.errors import InputError, NotFound
from noetl.kernel.replay.as_of import HEAD, AsOf, resolve_organization
from noetl.model.catalogue.queries import QueriedDataset
from noetl.services.query.answer_formats import ARROW, CSV, as_arrow, as_csv, as_rows
from noetl.services.query.audit import PublicQuery
from noetl.services.query.errors import QueriesBusy
from noetl.services.query.queries import Queries
from noetl.services.query.question import Answer, Question
from noetl.spark.lake.integrity.checks import Proving

routes = Routes("query")

_JSON: Final = "application/json"
_FORMS: Final = (_JSON, ARROW, CSV)


class QueryRequest(Body, frozen=True, kw_only=True):
    """One SELECT over published datasets, and the bounds of its answer."""

    sql: Annotated[str, Meta(min_length=1, max_length=100_000, pattern=wire.NO_NUL)]
    engine: Literal["duckdb", "spark"] = "duckdb"
    as_of: Point | None = None
    """A mark, a time or an event id; what stands now unless given."""
    limit: Annotated[int, Meta(ge=0)] | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None


class ColumnView(View, frozen=True, kw_only=True):
    """A column of an answer."""

    name: str
    type: str


class QueryView(View, frozen=True, kw_only=True):
    """An answer with what it was read from; the same SQL as of this mark gives the same rows."""

    query_id: str
    columns: list[ColumnView]
    rows: list[list[Any]]
    """In the order of the columns."""
    truncated: bool
    """Whether there are more rows than the limit."""
    limit: int
    as_of: str
    datasets: Sequence[QueriedDataset]
    engine: str
    milliseconds: float
    proven: Proving
    """Files that had to be hashed first, because the server's node had not proven them before."""


class AskedView(PublicQuery, frozen=True, kw_only=True):
    """A query of the past; its text is not kept, only its SHA-256."""

    as_of: str | None


class AskedPage(View, frozen=True, kw_only=True):
    """Queries, the newest first; `next_cursor` is null on the last page."""

    queries: list[AskedView]
    next_cursor: str | None


class AskedQuery(Body, frozen=True, kw_only=True):
    """Which queries to list."""

    cursor: wire.Id | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    outcome: Literal["answered", "refused", "failed"] | None = None
    dataset: Name | None = None


@routes.post("/api/query", READERS, repeatable=True)
async def ask_query(call: Call, body: QueryRequest) -> QueryView | Response:
    """Answer one SELECT over published datasets.

    The Accept header chooses between application/json, text/csv and application/vnd.apache.arrow.stream; the headers of
    the answer and the schema of an Arrow stream say what was read.
    """
    form = _form(call)
    queries = _queries(call)
    services = call.services
    point = HEAD if body.as_of is None else AsOf.parse(body.as_of)
    mark = None if point == HEAD else await resolve_organization(services.history, services.database, call.scope, point)
    question = Question(sql=body.sql, engine=body.engine, mark=mark, rows=body.limit, seconds=body.timeout_seconds)
    try:
        answer = await queries.ask(asker_of(call), question)
    except QueriesBusy as problem:
        raise TooMany(problem.message, hint=problem.hint) from None
    return await asyncio.to_thread(_answered, answer, form)


@routes.get("/api/query/log", ADMINS)
async def list_queries(call: Call, query: AskedQuery) -> AskedPage:
    """List queries that were asked, the newest first."""
    before = None if query.cursor is None else int(query.cursor)
    found = await _queries(call).audit.listed(
        call.scope, before=before, outcome=query.outcome, dataset=query.dataset, limit=query.limit + 1
    )
    page = found[: query.limit]
    views = [combined(AskedView, one, as_of=one.mark) for one in page]
    return AskedPage(queries=views, next_cursor=page[-1].query_id if len(found) > len(page) else None)


def _queries(call: Call) -> Queries:
    if call.services.queries is None:
        raise NotFound("this server answers no queries", hint="start it with a lake: `noetl server`")
    return call.services.queries


def _form(call: Call) -> str:
    """Return the form of answer that the caller likes best of those there are."""
    wanted: list[tuple[float, int, str]] = []
    for place, given in enumerate(call.request.headers.get("accept", "*/*").split(",")):
        kind, *parameters = [part.strip().lower() for part in given.split(";")]
        quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        try:
            wanted.append((-float(quality), place, kind))
        except ValueError:
            continue
    for worth, _, kind in sorted(wanted):
        for form in _FORMS:
            if worth and kind in (form, "*/*", f"{form.partition('/')[0]}/*"):
                return form
    raise InputError(f"the answer has none of the forms that Accept names: {', '.join(_FORMS)}")


def _answered(answer: Answer, form: str) -> QueryView | Response:
    headers = {
        "Cache-Control": "no-store",
        "Noetl-Query": str(answer.query_id),
        "Noetl-As-Of": answer.mark.token(),
        "Noetl-Proven-Bytes": str(answer.proven.bytes),
        "Noetl-Truncated": str(answer.truncated).lower(),
        "Vary": "Accept",
    }
    if form == ARROW:
        told = {"noetl.query": str(answer.query_id), "noetl.as_of": answer.mark.token()}
        told |= {f"noetl.generation.{one.name}": one.dataset_version for one in answer.datasets}
        return Response(as_arrow(answer.table, told), 200, headers, ARROW)
    if form == CSV:
        return Response(as_csv(answer.table), 200, headers, f"{CSV}; charset=utf-8; header=present")
    view = combined(
        QueryView,
        answer,
        query_id=str(answer.query_id),
        columns=[ColumnView(name=one.name, type=str(one.type)) for one in answer.table.schema],
        rows=as_rows(answer.table),
        as_of=answer.mark.token(),
        milliseconds=round(answer.milliseconds, 3),
    )
    return Response(wire.encode(view), 200, headers, _JSON)
