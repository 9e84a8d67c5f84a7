"""Runs a container as a Kubernetes Job and waits for its end.

The Job's name is that of the effect, so a worker that takes over a task finds the Job which another worker created and
follows it. The one that follows it last is its holder, and only the holder deletes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4

from noetl.engine.tools.container.cluster import Cluster, Verdict, Watching, has_failed
from noetl.engine.tools.container.manifest import CONTAINER, HOLDER, has_secret, job_of, secret_of
from noetl.engine.tools.container.outcomes import Ending
from noetl.engine.tools.container.request import Request
from noetl.engine.tools.programs.process import MAX_OUTPUT
from noetl.errors import Unavailable

_log = logging.getLogger(__name__)
_MERGE = "application/merge-patch+json"
_TRIES = 5
_DELETE_SECONDS = 10.0


class JobRun:
    """One try to run a request in a cluster."""

    def __init__(self, cluster: Cluster, request: Request) -> None:
        self._cluster = cluster
        self._request = request
        self._namespace = str(request.options.get("namespace") or cluster.namespace)
        self._holder = uuid4().hex
        self._watching = Watching(cluster, self._namespace, request.name)

    async def run(self, seconds: float | None) -> Ending:
        """Create or find the Job and return how it ended; whatever breaks this off, the Job is deleted."""
        started = time.monotonic()
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._started()
                    verdict = await self._watching.verdict()
            except TimeoutError:
                verdict = Verdict(reason="DeadlineExceeded", message=self._limit(), is_stuck=True)
            ending = await self._ended(verdict, time.monotonic() - started)
        except BaseException:
            await _to_the_end(self._deleted())
            raise
        if verdict.is_stuck or (not verdict.succeeded and self._request.options.get("cleanup") is not False):
            await _to_the_end(self._deleted())
        return ending

    def _limit(self) -> str:
        return f"its limit is {self._request.seconds:g} seconds"

    async def _started(self) -> None:
        """Have a Job that is ours: one we create, or one that another try left under way or done."""
        for _ in range(_TRIES):
            try:
                job = await self._cluster.batch.create_namespaced_job(
                    self._namespace, job_of(self._request, self._holder)
                )
            except Exception as error:
                if getattr(error, "status", None) != 409:
                    raise
                job = await self._taken_over()
                if job is None:
                    continue
            await self._unlocked(job)
            return
        raise Unavailable(f"the Job {self._request.name} of an earlier try is still being deleted")

    async def _taken_over(self) -> Any:
        """Make the Job that is there ours; None when it is not there any more, or failed and was cleared away."""
        found = await self._read()
        if found is None:
            return None
        if found.metadata.deletion_timestamp is not None or has_failed(found):
            await self._delete(found)
            await self._watching.gone()
            return None
        mine = {"metadata": {"annotations": {HOLDER: self._holder}, "resourceVersion": found.metadata.resource_version}}
        try:
            return await self._patched(mine)
        except Exception as error:
            if getattr(error, "status", None) in (404, 409):
                return None
            raise

    async def _unlocked(self, job: Any) -> None:
        """Give the Job its Secret and let it start."""
        if not has_secret(self._request) or not job.spec.suspend:
            return
        try:
            await self._cluster.core.create_namespaced_secret(
                self._namespace, secret_of(self._request, job.metadata.uid)
            )
        except Exception as error:
            if getattr(error, "status", None) != 409:
                raise
        await self._patched({"spec": {"suspend": False}})

    async def _patched(self, change: dict[str, Any]) -> Any:
        return await self._cluster.batch.patch_namespaced_job(
            self._request.name, self._namespace, change, _content_type=_MERGE
        )

    async def _ended(self, verdict: Verdict, seconds: float) -> Ending:
        pod = await self._watching.last_pod()
        exit_code, pod_reason, pod_message = _of_pod(pod)
        # A Job that failed for its pods' sake says only that; what happened stands with the pod.
        own = verdict.reason not in (None, "BackoffLimitExceeded", "PodFailurePolicy")
        return Ending(
            runtime="kubernetes",
            name=self._request.name,
            output=await self._log(pod),
            exit_code=0 if verdict.succeeded and exit_code is None else exit_code,
            reason=None if verdict.succeeded else verdict.reason if own else pod_reason or verdict.reason,
            message=verdict.message if own else pod_message or verdict.message,
            namespace=self._namespace,
            pod_name=None if pod is None else pod.metadata.name,
            succeeded=verdict.succeeded,
            seconds=seconds,
        )

    async def _log(self, pod: Any) -> str:
        if pod is None:
            return ""
        try:
            text = await self._cluster.core.read_namespaced_pod_log(
                pod.metadata.name, self._namespace, container=CONTAINER, limit_bytes=MAX_OUTPUT + 1
            )
        except Exception as error:
            # A container that never started has no log, and one whose node is gone lost it.
            if getattr(error, "status", None) is None:
                raise
            return ""
        return str(text)

    async def _read(self) -> Any:
        try:
            return await self._cluster.batch.read_namespaced_job(self._request.name, self._namespace)
        except Exception as error:
            if getattr(error, "status", None) == 404:
                return None
            raise

    async def _deleted(self) -> None:
        """Delete the Job with its pods and its Secret, unless another try follows it by now."""
        async with asyncio.timeout(_DELETE_SECONDS):
            while True:
                found = await self._read()
                if found is None or (found.metadata.annotations or {}).get(HOLDER) != self._holder:
                    return
                if await self._delete(found):
                    return

    async def _delete(self, job: Any) -> bool:
        exactly = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
        try:
            await self._cluster.batch.delete_namespaced_job(
                self._request.name,
                self._namespace,
                body={"propagationPolicy": "Background", "preconditions": exactly},
            )
        except Exception as error:
            if getattr(error, "status", None) == 404:
                return True
            if getattr(error, "status", None) != 409:
                raise
            return False
        return True


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do work that a cancellation does not break off. What goes wrong with it is logged, so that it hides nothing."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    problem = None if task.cancelled() else task.exception()
    if problem is not None:
        _log.warning("a Kubernetes Job could not be deleted: %s", type(problem).__name__)
    if cancelled:
        raise asyncio.CancelledError


def _of_pod(pod: Any) -> tuple[int | None, str | None, str]:
    """Return the exit code, the reason and the message of a pod's end."""
    if pod is None or pod.status is None:
        return None, None, ""
    for one in pod.status.container_statuses or ():
        ended = one.state.terminated if one.state is not None else None
        if ended is not None:
            usual = ended.reason in (None, "Completed", "Error")
            return ended.exit_code, pod.status.reason if usual else ended.reason, ended.message or ""
        waits = one.state.waiting if one.state is not None else None
        if waits is not None:
            return None, pod.status.reason or waits.reason, waits.message or ""
    return None, pod.status.reason, pod.status.message or ""
