"""A question and its answer, and what is known of one while it is being answered. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.model.catalogue.queries import QueriedDataset
from noetl.model.mark import Mark
from noetl.services.query.access import Asker
from noetl.services.query.audit import Outcome, Told
from noetl.services.query.gate.gate import EngineName
from noetl.services.query.pins import Pins
from noetl.spark.lake.integrity.checks import Proving

if TYPE_CHECKING:
    import pyarrow as pa


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked."""

    sql: str
    engine: EngineName = "duckdb"
    mark: Mark | None = None
    """The point of the history to read; none reads what stands now."""
    rows: int | None = None
    seconds: float | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came out, and what it was read from: the same question at this mark gives the same rows."""

    query_id: int
    table: pa.Table
    truncated: bool
    """Whether there are more rows than were asked for."""
    limit: int
    engine: EngineName
    mark: Mark
    datasets: tuple[QueriedDataset, ...]
    milliseconds: float
    proven: Proving
    """What had to be hashed first, because this node had not proven it before."""


class Asking:
    """One question while it is being answered."""

    def __init__(self, query_id: int, asker: Asker, question: Question, began: float) -> None:
        self.query_id = query_id
        self.asker = asker
        self.question = question
        self.began = began
        self.pins: Pins | None = None
        self.proven = Proving()

    @property
    def datasets(self) -> tuple[QueriedDataset, ...]:
        """What is read, once that is pinned."""
        return () if self.pins is None else tuple(one.told for one in self.pins.datasets)

    def told(
        self, outcome: Outcome, now: float, *, rows: int | None = None, size: int | None = None, code: str | None = None
    ) -> Told:
        """Return what is recorded of it."""
        token = self.asker.token_id
        return Told(
            query_id=self.query_id,
            outcome=outcome,
            asked_by=self.asker.name,
            engine=self.question.engine,
            sql=self.question.sql,
            milliseconds=(now - self.began) * 1000,
            token_id=None if token is None else str(token),
            user_id=None if self.pins is None else self.pins.user_id,
            mark=None if self.pins is None else self.pins.mark.token(),
            rows=rows,
            bytes=size,
            code=code,
            datasets=self.datasets,
        )
