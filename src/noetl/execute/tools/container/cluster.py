"""Connections to Kubernetes: a credential, the worker's own service account or a kubeconfig go in, a client comes out."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from noetl.errors import InputError, Unsupported
from noetl.execute.tools.port import Call

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
