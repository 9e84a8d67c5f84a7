"""A plan of one organization: lake listing, rows, pins and policy go in, a plan comes out. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import orjson

from noetl.errors import Unavailable
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.payloads.port import PayloadStore
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.pipelines.catalog.datasets.reader import Datasets
from noetl.services.retention.decisions import GenerationFate, planned
from noetl.services.retention.facts import Facts, Generation, Held, VersionKey
from noetl.services.retention.lake_prefix import LakeFile, LakePrefixes
from noetl.services.retention.named_files import NamedFiles
from noetl.services.retention.pins import Pin
from noetl.services.retention.plan import DATA, Kind, Leftover, Letting, Line, Plan, Trim, Unfinished, summed
from noetl.services.retention.snapshot import Seen, look
from noetl.services.retention.summary import data_lines, file_lines, leftovers, unfinished_line
from noetl.spark.lake.storage import Lake

LISTED_AT_ONCE: Final = 8
LATE_WRITERS_DAYS: Final = 30
"""Below the prefix of a purged generation one looks that long for files of attempts that did not stop in time."""

_LOCATIONS: Final = """
SELECT g.dataset_version::text AS dataset_version, g.storage_location AS location FROM noetl.dataset_version AS g
LEFT JOIN noetl.retired_generation AS r USING (tenant_id, organization_id, dataset_version)
WHERE r.purged_at IS NULL OR r.files_removed_at IS NULL
   OR r.purged_at > clock_timestamp() - make_interval(days => $1)
"""


class Assembling:
    """Makes plans for one organization."""

    def __init__(
        self,
        scope: Scope,
        database: Database,
        payloads: PayloadStore,
        datasets: Datasets,
        lake: Lake,
        defaults: Mapping[str, Any],
    ) -> None:
        self._scope = scope
        self._database = database
        self._payloads = payloads
        self._datasets = datasets
        self._prefixes = LakePrefixes(lake, scope)
        self._defaults = defaults

    async def plan(self, kinds: Sequence[Kind], changes: Mapping[str, Any] | None = None) -> Plan:
        """Decide about everything of these kinds; `changes` replace parts of the policy for this plan alone."""
        # Listed before the rows are read: whatever is listed was either named by then, or its attempt had ended, or runs.
        listed = await self._listed() if {"generations", "versions", "staging"} & set(kinds) else {}
        seen = await look(self._database, self._scope, kinds, self._defaults, changes or {})
        lines, sweeps = list(seen.lines), seen.sweeps
        named = NamedFiles(self._database, self._payloads, self._scope)
        lettings: list[Letting] = []
        trims: list[Trim] = []
        unfinished: list[Unfinished] = []
        rests: list[Leftover] = []
        if listed:
            self._check_there(seen, listed)
            fates = planned(Facts(now=seen.now, generations=seen.generations, held=await self._held(seen)), seen.policy)
            if DATA & set(kinds):
                unfinished = await self._unfinished(seen, listed, named)
                lines += [unfinished_line(one) for one in unfinished]
                lettings = [_letting(fate, listed) for fate in fates if _ends(fate, kinds)]
            if "versions" in kinds:
                trims = [await self._trim(fate, named) for fate in fates if fate.trimmed]
            lines += data_lines(fates, lettings, trims, kinds, listed)
            if "staging" in kinds:
                going = {one.generation.dataset_version for one in lettings if one.purged}
                rests = await self._leftovers(seen, listed, going, named, lines)
        return Plan(
            scope=self._scope,
            made_at=seen.now,
            policy=seen.policy,
            kinds=tuple(kinds),
            pins_version=seen.pins_version,
            dag_versions=seen.dag_versions,
            lines=summed([line for line in lines if line.items]),
            lettings=tuple(lettings),
            trims=tuple(trims),
            unfinished=tuple(unfinished),
            leftovers=tuple(rests),
            sweeps=tuple(sweeps),
        )

    async def _listed(self) -> dict[str, list[LakeFile]]:
        async with self._database.transaction(self._scope) as connection:
            rows = await connection.fetch(_LOCATIONS, LATE_WRITERS_DAYS)
        if rows:
            self._prefixes.check()
        gate = asyncio.Semaphore(LISTED_AT_ONCE)

        async def files(location: str) -> list[LakeFile]:
            async with gate:
                return await self._prefixes.files(location)

        found = await asyncio.gather(*(files(row["location"]) for row in rows))
        return {row["dataset_version"]: some for row, some in zip(rows, found, strict=True)}

    def _check_there(self, seen: Seen, listed: Mapping[str, list[LakeFile]]) -> None:
        """Refuse a lake that has none of the files readers see: it is another one, or not mounted."""
        for one in seen.generations:
            name = one.dataset_version
            if "current" in one.uses and seen.expected.get(name) and name in listed and not listed[name]:
                raise Unavailable(
                    f"the lake has no file of dataset {one.dataset} below {one.location}",
                    hint="is it mounted, and is it the right one? `noetl config show` tells where it is looked for",
                )

    async def _held(self, seen: Seen) -> Held:
        read: dict[VersionKey, str] = {}
        labels = {task.task_id: task.label for task in seen.tasks}
        for task_id, dataset_version, key, version in seen.inputs:
            read[dataset_version, key, version] = labels[task_id]
        for task in seen.tasks:
            if task.inputs_ref is not None and task.inputs:
                parts = orjson.loads(await self._payloads.fetch(self._scope, task.inputs_ref))
                for alias, dataset_version in task.inputs:
                    for key, version, *_ in parts.get(alias, ()):
                        read[dataset_version, key, version] = task.label
        pinned: dict[VersionKey, str] = {}
        for pin in seen.pins:
            for name in await self._pinned(pin):
                pinned.setdefault(name, pin.label)
        return Held(pinned=pinned, read=read)

    async def _pinned(self, pin: Pin) -> Iterable[VersionKey]:
        if pin.mark is None:
            return ()
        every = [pin.dataset_uuid] if pin.dataset_uuid else await self._every_dataset()
        found: list[VersionKey] = []
        for dataset in every:
            view = await self._datasets.view(self._scope, dataset, Mark.parse(pin.mark))
            if view.generation is not None:
                name = view.generation.dataset_version
                found += [(name, part.partition_key, part.version) for part in view.partitions]
        return found

    async def _every_dataset(self) -> list[str]:
        return [one.dataset_uuid for one in await self._datasets.registered(self._scope)]

    async def _unfinished(
        self, seen: Seen, listed: Mapping[str, list[LakeFile]], named: NamedFiles
    ) -> list[Unfinished]:
        found = [
            Unfinished(
                dataset_version=row["dataset_version"],
                location=row["location"],
                versions=None,
                files={file.path: file.bytes for file in listed.get(row["dataset_version"], ())},
            )
            for row in seen.purged
            if not row["done"]
        ]
        for row in seen.trimmed:
            versions = tuple(zip(row["keys"], row["versions"], strict=True))
            files = await named.only_of(row["dataset_version"], versions)
            found.append(
                Unfinished(
                    dataset_version=row["dataset_version"], location=row["location"], versions=versions, files=files
                )
            )
        return found

    async def _trim(self, fate: GenerationFate, named: NamedFiles) -> Trim:
        one = fate.generation
        versions = tuple((version.partition_key, version.version) for version in fate.trimmed)
        files = await named.only_of(one.dataset_version, versions)
        return Trim(generation=_light(one), versions=versions, files=files, reason=_trim_reason(fate))

    async def _leftovers(
        self,
        seen: Seen,
        listed: Mapping[str, list[LakeFile]],
        going: set[str],
        named: NamedFiles,
        lines: list[Line],
    ) -> list[Leftover]:
        days = seen.policy.staging_days
        age = None if days is None else timedelta(days=days) + seen.policy.grace
        running: dict[str, list[datetime]] = {}
        for task in seen.tasks:
            if task.running_since is not None:
                running.setdefault(task.generation, []).append(task.running_since)
        places = [(one.dataset_version, one.location, one.generation, one.dataset) for one in seen.generations]
        places += [(row["dataset_version"], row["location"], row["generation"], "purged") for row in seen.purged]
        finished = {row["dataset_version"]: row["done"] for row in seen.purged}
        found = []
        for name, location, generation, subject in places:
            files = listed.get(name, [])
            if not files or name in going or finished.get(name) is False:
                continue
            whole = sum(file.about == file.path for file in files) == seen.expected.get(name, 0)
            known = {file.path for file in files} if whole and name not in finished else set()
            if not known and name not in finished:
                known = await named.named(name)
            fates = leftovers(files, known, running.get(generation, []), seen.now, age)
            lines += file_lines(subject, fates)
            rest = {fate.file.path: fate.file.bytes for fate in fates if not fate.kept}
            if rest:
                found.append(Leftover(location=location, files=rest))
        return found


def _letting(fate: GenerationFate, listed: Mapping[str, list[LakeFile]]) -> Letting:
    one = fate.generation
    ends = [ended for _, ended in one.served if ended is not None]
    files = listed.get(one.dataset_version, []) if fate.purged else []
    return Letting(
        generation=_light(one),
        purged=fate.purged,
        reason=fate.why,
        served_until=max(ends, default=None),
        items=len(files),
        bytes=sum(file.bytes for file in files),
    )


def _ends(fate: GenerationFate, kinds: Sequence[Kind]) -> bool:
    """Tell whether a generation's end is to be recorded: once it is retired, only that it is purged."""
    if fate.usable:
        return False
    return "generations" in kinds if fate.purged else not fate.generation.retired


def _light(one: Generation) -> Generation:
    return msgspec.structs.replace(one, versions=())


def _trim_reason(fate: GenerationFate) -> str:
    return next(one.why for one in fate.versions if not one.kept)
