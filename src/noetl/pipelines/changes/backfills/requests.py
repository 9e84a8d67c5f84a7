"""Backfills from a range to queued partitions, and what people do with them: pause, resume, cancel, look.

A request stores the names of all partitions first, so that whoever finds it half queued queues the rest. Whoever changes
a backfill appends to its stream at the version known; of two at once one has to look again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import orjson

from noetl.engine.dispatch.facts.postgres import PostgresFacts
from noetl.engine.dispatch.request_keys import reused, stands_for
from noetl.errors import Conflict, InputError, KeyReused, NotFound, PayloadCollected, VersionConflict
from noetl.faults import reach
from noetl.kernel.ledger.transition import Append, Transition
from noetl.model.event import Draft
from noetl.model.stream import Scope
from noetl.pipelines.changes.backfills.preview import BackfillPlan
from noetl.pipelines.changes.backfills.rows import Backfill, Progress, read_backfill, read_backfills, read_progress
from noetl.pipelines.changes.context import Located, Means
from noetl.pipelines.plan import identity

KEYS_BYTES: Final = 48 * 1024
"""Names of partitions in one event, at most."""
APPENDED_TOGETHER: Final = 4
"""Events of one append: more would hold others up, fewer would wait for the disk more often."""
JSON: Final = "application/json"
_TRIES: Final = 50
_OPEN_TASKS: Final = """
SELECT task_id::text AS task_id FROM noetl.task WHERE execution_id = $1 AND available_at IS NOT NULL
"""


class Backfills:
    """The backfills of one database."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def request(
        self, scope: Scope, found: Located, plan: BackfillPlan, *, by: str, key: str | None = None
    ) -> Backfill:
        """Queue the partitions of a plan; tasks are made of them a few at a time by whoever drives.

        With a `key`, a second request under it gives the backfill of the first one.
        """
        while True:
            if (
                key is not None
                and (run := await stands_for(PostgresFacts(self._means.database), scope, key)) is not None
            ):
                return await self._repeated(scope, run, key, found, plan)
            if not plan.keys:
                raise InputError(
                    f"there is no partition of {plan.dataset} from {plan.selection.start} to {plan.selection.end}",
                    hint="its inputs have nothing for this range",
                )
            keys = orjson.dumps(plan.keys)
            ref = await self._means.payloads.store(scope, keys, JSON, rows=plan.total)
            execution_id = self._means.mint()
            stream = identity.backfill_stream(scope, execution_id)
            async with self._means.database.transaction(scope) as connection:
                forgotten = await self._means.forgotten(connection, scope, execution_id, [found.facts])
            meta = {
                "dag": plan.dag,
                "generation": found.facts.generation,
                "dataset_uuid": found.dataset.dataset_uuid,
                "dataset_version": found.output.dataset_version,
                "total": plan.total,
                "max_in_flight": plan.max_in_flight,
                "requested_by": by,
            }
            draft = self._means.drafting.one(
                scope, stream, execution_id, "backfill.requested", stream.stream_id, node_name=plan.job,
                payload_ref=ref, meta=meta, context={"selection": msgspec.to_builtins(plan.selection)},
            )  # fmt: skip
            requested = self._means.requested(scope, execution_id, found.facts, by, key=key, cause="backfill")
            appends = (requested, Append(stream, [draft], 0), *forgotten.values())
            reach("backfill.before_request")
            try:
                await self._means.ledger.transact(Transition(appends))
            except (VersionConflict, PayloadCollected):
                continue  # what an operator keeps, or a payload, changed meanwhile
            except KeyReused:
                continue  # somebody was quicker with the same key: theirs is what it stands for
            reach("backfill.after_request")
            with suppress(VersionConflict):  # somebody else queues, or it was paused or cancelled meanwhile
                await self._queue(scope, execution_id, plan.job, plan.keys, 0, 1)
            self._means.recorded(scope, execution_id)
            return await self.show(scope, execution_id)

    async def _repeated(self, scope: Scope, run: int, key: str, found: Located, plan: BackfillPlan) -> Backfill:
        try:
            one = await self.show(scope, run)
        except NotFound:
            raise reused(key, run) from None
        stands = (one.dataset_uuid, one.max_in_flight, one.selection)
        if stands != (found.dataset.dataset_uuid, plan.max_in_flight, msgspec.to_builtins(plan.selection)):
            raise reused(key, run)
        return one

    async def queue_rest(self, scope: Scope, one: Backfill) -> None:
        """Queue what a request that did not come to its end left."""
        keys = orjson.loads(await self._means.payloads.fetch(scope, one.keys_ref))
        await self._queue(scope, one.backfill_id, one.job, keys, one.queued, one.version)

    async def _queue(
        self, scope: Scope, backfill_id: int, job: str, keys: Sequence[str], queued: int, version: int
    ) -> None:
        stream = identity.backfill_stream(scope, backfill_id)
        prefix = _beginning(keys)
        chunks = _chunks(keys, queued, len(prefix))
        while chunks:
            some, chunks = chunks[:APPENDED_TOGETHER], chunks[APPENDED_TOGETHER:]
            drafts: list[Draft] = [
                self._means.drafting.one(
                    scope, stream, backfill_id, "backfill.queued", stream.stream_id, node_name=job,
                    meta={"first": first, "count": upto - first},
                    context={"prefix": prefix, "keys": "\n".join([key[len(prefix) :] for key in keys[first:upto]])},
                )
                for first, upto in some
            ]  # fmt: skip
            reach("backfill.before_queue")
            await self._means.ledger.transact(Transition((Append(stream, drafts, version),)))
            reach("backfill.after_queue")
            version += len(drafts)

    async def show(self, scope: Scope, backfill_id: int) -> Backfill:
        """Return one backfill."""
        async with self._means.database.transaction(scope) as connection:
            return await read_backfill(connection, backfill_id)

    async def progress(self, scope: Scope, backfill_id: int) -> tuple[Backfill, Progress]:
        """Return a backfill with what became of its tasks."""
        async with self._means.database.transaction(scope) as connection:
            one = await read_backfill(connection, backfill_id)
            return one, await read_progress(connection, one)

    async def listed(
        self, scope: Scope, *, status: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[Backfill]:
        """Return backfills, the newest first."""
        async with self._means.database.transaction(scope) as connection:
            return await read_backfills(connection, status, before, limit)

    async def pause(self, scope: Scope, backfill_id: int, *, by: str, reason: str | None = None) -> Backfill:
        """Give out no further partitions; tasks under way go on."""
        return await self._change(scope, backfill_id, "paused", {"queueing", "running"}, by, reason)

    async def resume(self, scope: Scope, backfill_id: int, *, by: str) -> Backfill:
        """Go on with a backfill that was paused."""
        return await self._change(scope, backfill_id, "resumed", {"paused"}, by, None)

    async def cancel(self, scope: Scope, backfill_id: int, *, by: str, reason: str | None = None) -> Backfill:
        """Give a backfill up, and cancel what is under way of it; what was built stays."""
        why = reason or "the backfill was cancelled"
        one = await self._change(scope, backfill_id, "cancelled", {"queueing", "running", "paused"}, by, why)
        async with self._means.database.transaction(scope) as connection:
            tasks = await connection.fetch(_OPEN_TASKS, backfill_id)
        for task in tasks:
            with suppress(Conflict):  # it ended a moment ago
                await self._means.engine.by_hand.cancel(scope, task["task_id"], reason=why, by=by)
        self._means.recorded(scope, backfill_id)
        return one

    async def _change(
        self, scope: Scope, backfill_id: int, word: str, known: set[str], by: str, reason: str | None
    ) -> Backfill:
        for _ in range(_TRIES):
            one = await self.show(scope, backfill_id)
            if one.status not in known:
                raise Conflict(f"backfill {backfill_id} is {one.status} and cannot be {word}")
            reach("backfill.before_change")
            try:
                await self.record(scope, one, f"backfill.{word}", {"by": by}, error=reason)
            except VersionConflict:
                continue
            reach("backfill.after_change")
            self._means.recorded(scope, backfill_id)
            return await self.show(scope, backfill_id)
        raise Conflict(f"backfill {backfill_id} keeps moving; try again")

    async def record(
        self,
        scope: Scope,
        one: Backfill,
        event_type: str,
        meta: dict[str, Any],
        *more: Append,
        error: str | None = None,
    ) -> None:
        """Record a step of a backfill as it is known, with what else has to happen at the same moment."""
        stream = identity.backfill_stream(scope, one.backfill_id)
        draft = self._means.drafting.one(
            scope, stream, one.backfill_id, event_type, stream.stream_id, node_name=one.job, meta=meta, error=error
        )
        await self._means.ledger.transact(Transition((Append(stream, [draft], one.version), *more)))

    async def news(self, seconds: float) -> None:
        """Wait until something was recorded in this process, or for so long."""
        news = self._means.engine.outbox.news
        await news.wait(news.number, seconds)


def _beginning(keys: Sequence[str]) -> str:
    """Return what all names begin with, short enough that each has something left."""
    low, high, shortest = min(keys), max(keys), min(map(len, keys))
    same = next((place for place in range(shortest) if low[place] != high[place]), shortest)
    return low[: min(same, shortest - 1)]


def _chunks(keys: Sequence[str], queued: int, shared: int) -> list[tuple[int, int]]:
    """Cut the partitions from a place on into runs whose names fit one event."""
    found = []
    first, size = queued, 0
    for place in range(queued, len(keys)):
        own = len(keys[place].encode()) - shared + 2
        if size + own > KEYS_BYTES and place > first:
            found.append((first, place))
            first, size = place, 0
        size += own
    if first < len(keys):
        found.append((first, len(keys)))
    return found
