"""Describes a container as Kubernetes objects: a request goes in, a Job and the Secret it reads come out.

No value of the environment stands in the Job: whoever may read Jobs and pods does not thereby read secrets. A rendered
text does not tell whether a secret is in it, so all of them go into the Secret.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, Final

from noetl.engine.tools.container.request import SCRIPT_PLACE, Request
from noetl.errors import InputError

CONTAINER: Final = "main"
HOLDER: Final = "noetl.io/holder"
"""The annotation that names the try which follows the Job and may delete it."""
SCRIPT_KEY: Final = "noetl.script"

_TTL_SECONDS: Final = 600
_MOST_SECRET: Final = 1_000_000
_POD_FIELDS: Final = (
    ("service_account", "serviceAccountName"),
    ("node_selector", "nodeSelector"),
    ("tolerations",) * 2,
)
_CONTAINER_FIELDS: Final = (
    ("image_pull_policy", "imagePullPolicy"),
    ("working_dir", "workingDir"),
    ("resources", "resources"),
)
_OF_MOUNTS: Final = (
    ("mountPath", "mount_path"),
    ("subPath", "sub_path"),
    ("readOnly", "read_only"),
)


def job_of(request: Request, holder: str) -> dict[str, Any]:
    """Return the Job; it is suspended where it has a Secret to wait for."""
    options = request.options
    labels = {**_texts(options.get("labels"), "labels"), **request.labels}
    spec: dict[str, Any] = {
        "backoffLimit": _whole(options.get("backoff_limit"), "backoff_limit", 0),
        "suspend": has_secret(request),
        "template": {
            "metadata": {"labels": labels, "annotations": _texts(options.get("annotations"), "annotations")},
            "spec": _pod(request),
        },
    }
    if options.get("cleanup") is not False:
        ttl = options.get("ttl_seconds_after_finished")
        spec["ttlSecondsAfterFinished"] = _whole(ttl, "ttl_seconds_after_finished", _TTL_SECONDS)
    if request.seconds is not None:
        # The cluster ends it also when nobody is left to do so.
        spec["activeDeadlineSeconds"] = max(1, math.ceil(request.seconds))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name, "labels": labels, "annotations": {HOLDER: holder}},
        "spec": spec,
    }


def has_secret(request: Request) -> bool:
    """Say whether a container reads a Secret."""
    return bool(request.env) or request.script is not None


def secret_of(request: Request, job_uid: str) -> dict[str, Any]:
    """Return the Secret with the variables and the script; it goes when the Job goes."""
    data = dict(request.env)
    if request.script is not None:
        data[SCRIPT_KEY] = request.script.text
    if sum(len(name) + len(value.encode()) for name, value in data.items()) > _MOST_SECRET:
        raise InputError(f"env and script of a container are at most {_MOST_SECRET} bytes together")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": request.name, "uid": job_uid}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": request.name, "labels": dict(request.labels), "ownerReferences": [owner]},
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()},
    }


def _pod(request: Request) -> dict[str, Any]:
    volumes, mounts = _volumes(request)
    pod: dict[str, Any] = {
        "restartPolicy": str(request.options.get("restart_policy") or "Never"),
        "containers": [_container(request, mounts)],
        **{there: request.options[here] for here, there in _POD_FIELDS if request.options.get(here)},
    }
    if volumes:
        pod["volumes"] = volumes
    pulling = request.options.get("image_pull_secrets")
    if pulling:
        pod["imagePullSecrets"] = [one if isinstance(one, Mapping) else {"name": str(one)} for one in pulling]
    return pod


def _container(request: Request, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    read = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": request.name, "key": name}}}
        for name in sorted(request.env)
    ]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": request.image,
        **{there: request.options[here] for here, there in _CONTAINER_FIELDS if request.options.get(here)},
    }
    for name, value in (
        ("command", request.command),
        ("args", request.args),
        ("env", [*read, *request.env_from_cluster]),
        ("volumeMounts", mounts),
    ):
        if value:
            container[name] = value
    return container


def _volumes(request: Request) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    for number, one in enumerate(request.options.get("volumes") or ()):
        if not isinstance(one, Mapping):
            raise InputError("volumes is a list of mappings")
        name = str(one.get("name") or f"volume-{number}")
        mount = {there: found for there, here in _OF_MOUNTS if (found := one.get(there, one.get(here))) is not None}
        if "mountPath" not in mount:
            raise InputError(f"volumes: {name} needs `mount_path`")
        known = {"name", *(spelling for pair in _OF_MOUNTS for spelling in pair)}
        volumes.append({"name": name, **{key: value for key, value in one.items() if key not in known}})
        mounts.append({"name": name, **mount})
    if request.script is not None:
        item = {"key": SCRIPT_KEY, "path": request.script.file}
        volumes.append({"name": "noetl-script", "secret": {"secretName": request.name, "items": [item]}})
        mounts.append({"name": "noetl-script", "mountPath": SCRIPT_PLACE, "readOnly": True})
    return volumes, mounts


def _texts(given: Any, field: str) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{field} is a mapping of names to texts")
    return {str(name): str(value) for name, value in given.items()}


def _whole(given: Any, field: str, usual: int) -> int:
    if given is None:
        return usual
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise InputError(f"{field} is a whole number from 0 on")
    return number
