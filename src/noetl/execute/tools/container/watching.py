"""Waits for a Job without asking again and again: the cluster tells of each change as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from noetl.execute.tools.container.cluster import Cluster
from noetl.execute.tools.container.endings import STUCK

_WATCH_SECONDS: Final = 240
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_EXPIRED: Final = 410


@dataclass(frozen=True)
class Verdict:
    """How a Job came to its end, in the cluster's words; one that is stuck has not ended by itself."""

    succeeded: bool = False
    reason: str | None = None
    message: str = ""
    is_stuck: bool = False


Judge = Callable[[Any], Verdict | None]


class Watching:
    """Follows one Job and its pods."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._job = {"field_selector": f"metadata.name={name}"}
        self._pods = {"label_selector": f"job-name={name}"}

    async def verdict(self) -> Verdict:
        """Wait until the Job has ended or one of its pods cannot start."""
        ways = [
            asyncio.ensure_future(self._until(self._cluster.batch.list_namespaced_job, self._job, _ended)),
            asyncio.ensure_future(self._until(self._cluster.core.list_namespaced_pod, self._pods, _stuck)),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return next(way for way in ways if way in done).result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def gone(self) -> None:
        """Wait until there is no Job of the name."""
        await self._until(
            self._cluster.batch.list_namespaced_job, self._job, lambda job: Verdict() if job is None else None
        )

    async def last_pod(self) -> Any:
        """Return the pod that was created last; None if there is none."""
        listed = await self._cluster.core.list_namespaced_pod(self._namespace, **self._pods)
        return max(listed.items, key=lambda pod: str(pod.metadata.creation_timestamp), default=None)

    async def _until(self, listing: Callable[..., Any], chosen: dict[str, str], judge: Judge) -> Verdict:
        """Judge what is there, then each change, until there is a verdict; None is judged where nothing is there."""
        failures = 0
        while True:
            try:
                listed = await listing(self._namespace, **chosen)
                for item in listed.items or [None]:
                    if (verdict := judge(item)) is not None:
                        return verdict
                async with self._cluster.watch().stream(
                    listing,
                    self._namespace,
                    **chosen,
                    resource_version=listed.metadata.resource_version,
                    timeout_seconds=_WATCH_SECONDS,
                ) as events:
                    async for event in events:
                        failures = 0
                        if (verdict := judge(None if event["type"] == "DELETED" else event["object"])) is not None:
                            return verdict
            except Exception as error:
                # A server that restarts, or forgot the version we stopped at, is asked anew.
                if not _passes(error) or failures >= len(_PAUSES):
                    raise
                if getattr(error, "status", None) != _EXPIRED:
                    await asyncio.sleep(_PAUSES[failures])
                failures += 1


def _ended(job: Any) -> Verdict | None:
    if job is None:
        return Verdict(reason="JobDeleted", message="somebody deleted its Job")
    for one in (job.status.conditions if job.status is not None else None) or ():
        if one.status == "True" and one.type == "Complete":
            return Verdict(succeeded=True)
        if one.status == "True" and one.type == "Failed":
            return Verdict(reason=one.reason, message=one.message or "")
    return None


def has_failed(job: Any) -> bool:
    """Say whether a Job has ended, and badly."""
    verdict = _ended(job)
    return verdict is not None and not verdict.succeeded


def _stuck(pod: Any) -> Verdict | None:
    for one in (pod.status.container_statuses or ()) if pod is not None and pod.status is not None else ():
        waits = one.state.waiting if one.state is not None else None
        if waits is not None and waits.reason in STUCK:
            return Verdict(reason=waits.reason, message=waits.message or "", is_stuck=True)
    return None


def _passes(error: Exception) -> bool:
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status in (_EXPIRED, 429) or status >= 500
    return isinstance(error, aiohttp.ClientError | OSError | TimeoutError)
