"""Kubernetes for the container tool: a credential goes in, a client comes out; a Job's changes are watched."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from noetl.engine.tools.container.outcomes import STUCK
from noetl.engine.tools.port import Call
from noetl.errors import InputError, Unsupported

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LOG_IN: Final = ("server", "token", "ca_cert", "namespace", "verify_ssl")


@dataclass(frozen=True)
class Cluster:
    """A cluster as one identity."""

    api: Any
    batch: Any
    core: Any
    watch: Any
    """Makes a watch."""
    namespace: str
    """Where Jobs go that name no namespace."""

    async def aclose(self) -> None:
        """Close the connections."""
        await self.api.close()


def is_configured(call: Call) -> bool:
    """Say whether a call, the worker's pod or a kubeconfig names a cluster."""
    return call.auth is not None or "KUBERNETES_SERVICE_HOST" in os.environ or any(map(Path.exists, _kubeconfigs()))


def looked_for() -> str:
    """Say where a cluster was looked for."""
    places = ", ".join(map(str, _kubeconfigs()))
    return f"a credential in `auth`, a service account of the worker's pod, and a kubeconfig ({places})"


def _kubeconfigs() -> list[Path]:
    named = os.environ.get("KUBECONFIG")
    return [Path(each) for each in named.split(os.pathsep) if each] if named else [Path.home() / ".kube" / "config"]


async def cluster_of(call: Call) -> Cluster:
    """Return the worker's connection to the cluster a call means."""
    data = await _credential(call)
    told = {name: data[name] for name in _LOG_IN if data.get(name) is not None}
    digest = hashlib.sha256(orjson.dumps(told, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()

    async def make() -> Cluster:
        return await _connected(told)

    found: Cluster = await call.resources.get(("kubernetes", call.owner if told else None, digest), make)
    return found


async def _credential(call: Call) -> Mapping[str, Any]:
    auth = call.auth
    if isinstance(auth, Mapping) and isinstance(named := auth.get("credential", auth.get("key")), str):
        auth = named
    if isinstance(auth, str):
        credential = await call.credentials.credential(auth)
        if credential.type != "kubernetes":
            raise InputError(f"auth: {auth!r} is a credential of type {credential.type}, and kubernetes is needed")
        auth = credential.data
    if auth is None:
        return {}
    if not isinstance(auth, Mapping) or not auth.get("server"):
        raise InputError("a credential of type kubernetes needs server and token")
    return auth


async def _connected(told: Mapping[str, Any]) -> Cluster:
    client, config, watch = await asyncio.to_thread(_libraries)
    settings = client.Configuration()
    if told:
        settings.host = str(told["server"])
        settings.verify_ssl = told.get("verify_ssl") is not False
        if told.get("ca_cert"):
            settings.ca_cert_data = str(told["ca_cert"])
        if told.get("token"):
            settings.api_key["BearerToken"] = f"Bearer {told['token']}"
        namespace = str(told.get("namespace") or "default")
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(client_configuration=settings)
        namespace = _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "default"
    else:
        await config.load_kube_config(client_configuration=settings)
        _, active = config.list_kube_config_contexts()
        namespace = str(active["context"].get("namespace") or "default")
    api = client.ApiClient(settings)
    return Cluster(api, client.BatchV1Api(api), client.CoreV1Api(api), watch.Watch, namespace)


def _libraries() -> tuple[Any, Any, Any]:
    try:
        client, config, watch = (
            importlib.import_module(f"kubernetes.aio.{name}") for name in ("client", "config", "watch")
        )
        return client, config, watch
    except ImportError:
        raise Unsupported(
            "running Jobs needs the Kubernetes client, which is not installed: pip install 'noetl[kubernetes]'"
        ) from None


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
