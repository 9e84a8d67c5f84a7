"""Queries from beginning to end: text goes in; it is checked, pinned, run within bounds and recorded; rows come out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from noetl.engine.catalog.evaluation import Evaluating
from noetl.errors import Damaged, Denied, InputError, NoetlError, NotFound
from noetl.model.stream import Scope
from noetl.services.query.access import Asker
from noetl.services.query.audit import Audit, Outcome
from noetl.services.query.duck.pool import Duck
from noetl.services.query.duck.protocol import Relation as DuckRelation
from noetl.services.query.errors import AnswerTooLarge, QueriesBusy, QueryRefused
from noetl.services.query.gate.gate import read
from noetl.services.query.gate.relations import OWN
from noetl.services.query.on_spark import OnSpark
from noetl.services.query.options import Limits
from noetl.services.query.pins import Pinned, Pinning, Pins
from noetl.services.query.question import Answer, Asking, Question
from noetl.spark.drivers.protocol import Relation as SparkRelation
from noetl.spark.lake.integrity.checks import Checks

if TYPE_CHECKING:
    import pyarrow as pa

_REFUSALS = (QueryRefused, Denied, QueriesBusy, NotFound)


class Queries:
    """Answers questions of all organizations, each over its own datasets alone."""

    def __init__(
        self,
        pinning: Pinning,
        audit: Audit,
        duck: Duck,
        checks: Checks,
        spark: OnSpark | None,
        mint: Callable[[], int],
        limits: Limits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._reading = Evaluating()
        self._pinning = pinning
        self._duck = duck
        self._checks = checks
        self._spark = spark
        self._mint = mint
        self._clock = clock
        self._running: Counter[Scope] = Counter()
        self.limits = limits
        self.audit = audit

    def running(self, scope: Scope) -> int:
        """Return how many queries of an organization are being answered."""
        return self._running[scope]

    async def ask(self, asker: Asker, question: Question) -> Answer:
        """Answer a question; whatever becomes of it is recorded before the caller hears of it."""
        rows, seconds = self._bounds(question)
        asking = Asking(self._mint(), asker, question, self._clock())
        try:
            with self._room(asker):
                table = await self._answered(asking, rows, seconds)
        except (Exception, asyncio.CancelledError) as problem:
            outcome: Outcome = "refused" if isinstance(problem, _REFUSALS) else "failed"
            told = asking.told(outcome, self._clock(), code=_code(problem))
            await asyncio.shield(self.audit.record(asker.scope, told))
            raise
        assert asking.pins is not None
        answer = Answer(
            query_id=asking.query_id,
            table=table.slice(0, rows),
            truncated=table.num_rows > rows,
            limit=rows,
            engine=question.engine,
            mark=asking.pins.mark,
            datasets=asking.datasets,
            milliseconds=(self._clock() - asking.began) * 1000,
            proven=asking.proven,
        )
        told = asking.told("answered", self._clock(), rows=answer.table.num_rows, size=answer.table.nbytes)
        await self.audit.record(asker.scope, told)
        return answer

    async def _answered(self, asking: Asking, rows: int, seconds: float) -> pa.Table:
        question = asking.question
        # Reading SQL takes up to seconds, and no organization waits for another's.
        scope = asking.asker.scope
        checked = await self._reading.beside(scope, partial(read, question.sql, question.engine))
        pins = asking.pins = await self._pinning.pin(asking.asker, checked.datasets, question.mark)
        names = {one.name: f"{OWN}{number}" for number, one in enumerate(pins.datasets)}
        sql = await self._reading.beside(scope, partial(checked.executable, names, pins.published, rows + 1))
        _refuse_empty(pins.datasets)
        try:
            if question.engine == "duckdb":
                await asyncio.to_thread(self._prove, asking, pins)
                return await self._duck.answer(_for_duck(names, pins), sql, seconds)
            if self._spark is None:
                raise InputError("there is no Spark here", hint="ask with the engine duckdb")
            table = await self._spark.answer(asking.asker.scope, asking.query_id, _for_spark(names, pins), sql, seconds)
        except NoetlError as problem:
            raise _in_words_of_the_asker(problem, names) from None
        most = self.limits.most_bytes
        if table.nbytes > most:
            raise AnswerTooLarge(f"the answer has more than {most:,} bytes", hint="ask for fewer rows or columns")
        return table

    def _prove(self, asking: Asking, pins: Pins) -> None:
        """Let DuckDB, which checks nothing itself, read only what this node has proven."""
        left = self.limits.proof
        for one in pins.datasets:
            try:
                told = self._checks.proven(one.files, left)
            except Damaged as problem:
                problem.args = (f"dataset {one.name} cannot be read: {problem.message}",)
                raise
            asking.proven = asking.proven.plus(told)
            left = left.without(told)

    def _bounds(self, question: Question) -> tuple[int, float]:
        own = self.limits
        rows = own.rows if question.rows is None else question.rows
        seconds = own.seconds if question.seconds is None else question.seconds
        if not 0 <= rows <= own.most_rows:
            raise InputError(f"{rows:,} rows cannot be asked for", hint=f"ask for up to {own.most_rows:,}")
        if not 0 < seconds <= own.most_seconds:
            raise InputError(f"{seconds:g} seconds cannot be waited", hint=f"wait for up to {own.most_seconds:g}")
        return rows, seconds

    @contextmanager
    def _room(self, asker: Asker) -> Iterator[None]:
        if self._running[asker.scope] >= self.limits.concurrent:
            raise QueriesBusy(
                f"this organization asks {self.limits.concurrent} queries already, as many as it may at a time",
                hint="ask again when one is answered",
            )
        self._running[asker.scope] += 1
        try:
            yield
        finally:
            self._running[asker.scope] -= 1
            if not self._running[asker.scope]:
                del self._running[asker.scope]


def _code(problem: BaseException) -> str:
    if isinstance(problem, QueryRefused):
        return problem.rule
    if isinstance(problem, NoetlError):
        return problem.code
    return "cancelled" if isinstance(problem, asyncio.CancelledError) else "internal"


def _refuse_empty(datasets: Sequence[Pinned]) -> None:
    for one in datasets:
        if not one.columns:
            raise NotFound(
                f"dataset {one.name} has no columns yet: nothing was committed to it",
                hint="build it first, or declare a schema for the job that builds it",
            )


def _for_duck(names: dict[str, str], pins: Pins) -> list[DuckRelation]:
    return [
        DuckRelation(
            name=names[one.name],
            columns=one.columns,
            paths=tuple(entry.path for entry in one.files),
            uniform=one.uniform,
        )
        for one in pins.datasets
    ]


def _for_spark(names: dict[str, str], pins: Pins) -> list[SparkRelation]:
    return [SparkRelation(name=names[one.name], columns=one.columns, files=one.files) for one in pins.datasets]


def _in_words_of_the_asker(problem: NoetlError, names: dict[str, str]) -> NoetlError:
    """Put the names of datasets where an engine's message has those we gave them."""
    message = problem.message
    for name, fixed in sorted(names.items(), key=lambda one: -len(one[1])):
        message = message.replace(fixed, name)
    problem.args = (message,)
    return problem
