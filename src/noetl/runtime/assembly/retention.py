"""Retention of one organization, connected: plans, runs, pins; also as the job that a server runs every day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.kernel.ledger.archive.retention import Keeping, RetentionReport, retain
from noetl.kernel.payloads.garbage_collection import CollectReport, collect
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.runtime.assembly.engine import producer_of
from noetl.runtime.assembly.pipelines import lake_of
from noetl.runtime.wiring import Runtime
from noetl.services.retention.archives import drop_holds, held_archives, last_look
from noetl.services.retention.pins import Pins
from noetl.services.retention.plan import KINDS, Kind, Line, Plan, summed
from noetl.services.retention.plan_builder import Assembling
from noetl.services.retention.policy import Policy, effective
from noetl.services.retention.run import Changed, Done, Running, alone
from noetl.services.retention.unused_bundles import remove_bundles, unused_bundles
from noetl.spark.lake.storage import Lake

TRIES: Final = 5
"""How often a plan is made anew that others outdated."""


@dataclass(frozen=True)
class Retention:
    """What people and schedules do with the retention of one organization."""

    runtime: Runtime
    scope: Scope
    pins: Pins
    lake: Lake

    async def policy(self) -> Policy:
        """Return what holds now."""
        return effective(self._defaults(), await self.pins.policy(self.scope))

    async def plan(self, kinds: Sequence[Kind] = KINDS, changes: Mapping[str, Any] | None = None) -> Plan:
        """Say what goes and what stays, and why; nothing is changed."""
        runtime = self.runtime
        datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
        assembling = Assembling(
            self.scope, runtime.database, runtime.payloads, datasets, self.lake, self._defaults()
        )  # fmt: skip
        plan = await assembling.plan(kinds, changes)
        lines = list(plan.lines)
        bundles: tuple[str, ...] = ()
        if "payloads" in kinds:
            lines += _payload_lines(await self._collect(plan.policy, dry_run=True))
        if "bundles" in kinds:
            bundles, told = await unused_bundles(runtime.database, self._bundle_home(), plan.policy, plan.made_at)
            lines += told
        return msgspec.structs.replace(plan, lines=summed(lines), bundles=bundles)

    async def run(self, plan: Plan) -> Done:
        """Carry out a plan; Changed if it is outdated."""
        runtime = self.runtime
        producer = producer_of(runtime, "retention")
        running = Running(self.scope, runtime.database, runtime.ledger, self.lake, runtime.ids.mint, producer)
        done = await running.run(plan)
        if "payloads" in plan.kinds:
            async with alone(runtime.database, self.scope):
                await drop_holds(runtime.database, self.scope)
            report = await self._collect(plan.policy, dry_run=False)
            done.add("payloads", report.removed, report.removed_bytes)
        if plan.bundles:
            done.add("bundles", *await remove_bundles(self._bundle_home(), plan.bundles))
        return done

    async def ledger(
        self, *, keep_months: int | None = None, keep_archive_months: int | None = None, dry_run: bool
    ) -> RetentionReport:
        """Archive, drop and give up months of the ledger, of all organizations that share it."""
        runtime, kept = self.runtime, self.runtime.settings.event_store.retention
        keeping = Keeping(
            reason=await held_archives(runtime.database, keep_archive_months or kept.keep_archive_months),
            last_look=last_look,
        )
        return await retain(
            runtime.database,
            runtime.ledger,
            runtime.payloads,
            mint=runtime.ids.mint,
            keep_months=keep_months or kept.keep_months,
            keep_archive_months=keep_archive_months or kept.keep_archive_months,
            keeping=keeping,
            stores=await runtime.projections.others_at(),
            now=await self._now(),
            dry_run=dry_run,
        )

    async def _collect(self, policy: Policy, *, dry_run: bool) -> CollectReport:
        chosen = self.runtime.settings.payload_store.gc
        return await collect(
            self.runtime.payloads,
            self.runtime.references,
            self.scope,
            now=await self._now(),
            grace=timedelta(hours=policy.payload_grace_hours or chosen.grace_hours),
            ttl=timedelta(days=chosen.ttl_days) if chosen.strategy == "ttl" else None,
            dry_run=dry_run,
        )

    async def _now(self) -> Any:
        async with self.runtime.database.transaction(self.scope) as connection:
            return await connection.fetchval("SELECT clock_timestamp()")

    def _defaults(self) -> dict[str, Any]:
        return self.runtime.settings.retention.policy()

    def _bundle_home(self) -> Path:
        return self.runtime.settings.runtime.home / "spark" / "bundles"


def open_retention(runtime: Runtime, scope: Scope | None = None, lake: Lake | None = None) -> Retention:
    """Return the retention of an organization: of the process's own unless told."""
    datasets = Datasets(runtime.database, runtime.payloads, runtime.history)
    producer = producer_of(runtime, "retention")
    pins = Pins(runtime.database, runtime.ledger, runtime.history, datasets, runtime.ids.mint, producer)
    return Retention(runtime, scope or runtime.scope, pins, lake or lake_of(runtime.settings))


async def run_retention(runtime: Runtime, scope: Scope | None = None) -> dict[str, Any]:
    """Run retention in one organization if its policy says so, as a schedule does, and return what was done."""
    retention = open_retention(runtime, scope)
    if not (await retention.policy()).automatic:
        return {"ran": False, "why": "the policy says that retention is run by hand"}
    done = await carried_out(retention)
    return {"ran": True, "removed": {kind: list(counts) for kind, counts in done.removed.items()}}


async def carried_out(
    retention: Retention, kinds: Sequence[Kind] = KINDS, changes: Mapping[str, Any] | None = None
) -> Done:
    """Plan and run; a plan that others outdated is made anew."""
    for left in reversed(range(TRIES)):
        try:
            return await retention.run(await retention.plan(kinds, changes))
        except Changed:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _payload_lines(report: CollectReport) -> list[Line]:
    lines = []
    for one in report.decisions:
        going = one.action != "kept"
        why = "nothing refers to it" if going else "something refers to it" if "refer" in one.reason else one.reason
        lines.append(
            Line(
                kind="payloads", subject="objects", action="remove" if going else "keep", why=why, items=1,
                bytes=one.stored_bytes,
            )
        )  # fmt: skip
    return lines
