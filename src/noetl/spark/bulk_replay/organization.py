"""Folds a whole organization on Spark: a scope and a mark go in, tallies, sums and wanted rows come out, added up.

Each shard is folded by itself, by the same folds and upcasters. Where only all shards together show that a user's fold
must refuse an event, a single process runs that fold once more and refuses it in its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from noetl.errors import NoetlError, Unavailable
from noetl.kernel.ledger.archive.rows import archive_rows
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.fields import Erasures, FieldsReader, nothing_erased
from noetl.kernel.payloads.port import PayloadStore
from noetl.kernel.projections.field_witness import Lost
from noetl.kernel.projections.folds.checksum import Sums, Tally
from noetl.kernel.projections.folds.fold import Fold, FoldedRow
from noetl.kernel.projections.folds.state import FoldState
from noetl.kernel.projections.upcast import Upcasters
from noetl.kernel.replay.pages import EventPages, fold_pages
from noetl.model.broken_stream import BrokenStream
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.spark.bulk_replay.claims import contested
from noetl.spark.bulk_replay.code_transfer import packed
from noetl.spark.bulk_replay.shard_plan import EventLakes, planned
from noetl.spark.bulk_replay.work import Asked, Failure, ShardAnswer, folded_row
from noetl.spark.drivers.process import LOST, Answering
from noetl.spark.drivers.protocol import RunProgram, WorkResult

_PROGRAM: Final = "noetl.spark.bulk_replay.program:replay"
_answer: Final = msgspec.msgpack.Decoder(ShardAnswer)

Reached = Callable[[int, int], None]
"""Is told how many positions are behind us, and of how many."""


class BulkReplayFailed(NoetlError):
    """Spark could not do a bulk replay."""

    code = "bulk_replay_failed"


class Driving(Protocol):
    """A driver as it is held."""

    async def do(self, errand: RunProgram, answer: Answering | None = None) -> WorkResult:
        """Do one errand and return its result."""
        ...


class SparkDrivers(Protocol):
    """What hands out Spark drivers."""

    def for_(self, code_digest: str, bundle: bytes, organization: str) -> AbstractAsyncContextManager[Driving]:
        """Hold a driver."""
        ...


@dataclass(kw_only=True)
class Gathered:
    """What all shards came to."""

    mark: Mark
    events: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    rows: list[FoldedRow] = field(default_factory=list)
    left_off: dict[str, int] = field(default_factory=dict)
    expected: Sums = field(default_factory=Sums)
    found: Sums = field(default_factory=Sums)
    unsound: int = 0
    """Stored rows whose checksum is not that of their text."""
    broken: list[BrokenStream] = field(default_factory=list)
    """Streams with fields that cannot be read."""
    lost: list[Lost] = field(default_factory=list)
    """Fields that folds did not get."""

    def add(self, answer: ShardAnswer) -> None:
        """Count in what one shard came to."""
        self.mark = self.mark.with_position(answer.shard, answer.last)
        self.events += answer.events
        for name, rows, total in answer.tallies:
            self.tallies.setdefault(name, Tally()).merge(Tally(rows, int(total, 16)))
        self.rows += map(folded_row, answer.rows)
        for name, count in answer.left_off.items():
            self.left_off[name] = self.left_off.get(name, 0) + count
        if answer.expected is not None:
            self.expected.merge(Sums.restore(answer.expected))
        if answer.found is not None:
            self.found.merge(Sums.restore(answer.found))
        self.unsound += answer.unsound
        self.broken += answer.broken
        self.lost += answer.lost


class BulkFolds:
    """Runs folds over organizations on Spark."""

    def __init__(
        self,
        drivers: SparkDrivers,
        reach: dict[str, Any],
        history: EventPages,
        database: Database,
        upcasters: Upcasters,
        mint: Callable[[], int],
        lakes: EventLakes | None = None,
        *,
        payloads: PayloadStore | None = None,
        erasures: Erasures = nothing_erased,
    ) -> None:
        """Take the parts; with lakes, events are read from there as far as these have them, and else from the ledger."""
        self._drivers = drivers
        self._reach = reach
        self._history = history
        self._database = database
        self._upcasters = upcasters
        self._mint = mint
        self._lakes = lakes
        self._payloads = payloads
        self._erasures = erasures

    async def fold(
        self,
        scope: Scope,
        folds: tuple[Fold, ...],
        mark: Mark | None,
        reached: Reached | None = None,
        *,
        projections: Iterable[str] = (),
        limit: int | None = None,
        places: Iterable[tuple[str, int]] | None = None,
        sums: bool = False,
        stopped: Iterable[BrokenStream] = (),
    ) -> Gathered:
        """Fold up to a mark; None is where each shard's projections stand, whose stored rows are then summed too.

        Streams that stand still are folded up to there.
        """
        head = await self._history.head()
        async with self._database.transaction(scope) as connection:
            archives = await archive_rows(connection)
        lake = None if self._lakes is None else await self._lakes.pinned(scope)
        asked = Asked(
            scope=scope,
            parts=planned(head, mark, archives, lake),
            code=packed(folds, self._upcasters),
            files=() if lake is None else lake.files,
            projections=tuple(projections),
            limit=limit,
            places=None if places is None else tuple(places),
            sums=sums,
            stored=mark is None,
            stopped=tuple(stopped),
            erased=await self._erasures(scope.tenant_id),
        )
        answers = await self._answers(asked, sum((mark or head).positions), reached)
        await self._refuse_contested(scope, folds, answers)
        found = Gathered(mark=Mark.zero(len(head.positions)), tallies={fold.projection: Tally() for fold in folds})
        for answer in answers:
            if answer.failure is not None:
                raise _raised(answer.failure)
            found.add(answer)
        return found

    async def _answers(self, asked: Asked, total: int, reached: Reached | None) -> list[ShardAnswer]:
        """Run the program and return what the shards answered, in their order."""
        owner = f"{asked.scope.tenant_id}/{asked.scope.organization_id}"
        errand = RunProgram(
            id=f"replay-{self._mint()}",
            attempt=1,
            organization=owner,
            reach=self._reach,
            program=_PROGRAM,
            arguments={"asked": msgspec.msgpack.encode(asked)},
        )

        async def told(progress: dict[str, Any]) -> dict[str, Any]:
            if reached is not None:
                reached(min(progress["reached"], total), total)
            return {}

        async with self._drivers.for_("", b"", owner) as driver:
            result = await driver.do(errand, told)
        if result.error_kind == LOST:
            raise Unavailable("the Spark driver ended during the replay", hint="run it again")
        if result.status != "ok":
            raise BulkReplayFailed(f"Spark could not do the replay: {result.error}", hint=_last_line(result.log))
        return sorted(map(_answer.decode, result.metrics["answers"]), key=lambda answer: answer.shard)

    async def _refuse_contested(self, scope: Scope, folds: tuple[Fold, ...], answers: list[ShardAnswer]) -> None:
        """Where two shards claim one row of a user's fold, let that fold refuse it as it does in a single process."""
        if not contested(answer.claimed for answer in answers):
            return
        state = FoldState([fold for fold in folds if not fold.per_execution], upcasters=self._upcasters)
        for answer in answers:
            last = (await self._history.head()).positions[answer.shard] if answer.failure else answer.last
            if last:
                pages = self._history.shard_pages(answer.shard, scope=scope, to_position=last)
                await fold_pages(state, pages, FieldsReader(self._payloads, self._erasures))


def _raised(failure: Failure) -> NoetlError:
    """Return the error that a shard met, as what it was."""
    kinds: dict[str, type[NoetlError]] = {}
    waiting: list[type[NoetlError]] = [NoetlError]
    while waiting:
        kind = waiting.pop()
        kinds.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return kinds.get(failure.code, BulkReplayFailed)(failure.message, hint=failure.hint, **failure.details)


def _last_line(log: str) -> str | None:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1][:500] if lines else None
