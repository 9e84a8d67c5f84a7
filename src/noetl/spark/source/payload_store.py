"""The payload store by its URL, for programs that have no settings of NoETL: a text goes in, an open store comes out.

`file:///directory`, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; what else a store needs
(`endpoint`, `region`, `access_key`, `secret_key`, `allow_http`, `keys` = the directory of the tenants' keys) stands
behind the question mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from noetl.errors import ConfigError

if TYPE_CHECKING:
    from noetl.kernel.payloads.objects.connect import Backend
    from noetl.kernel.payloads.objects.store import ObjectPayloadStore

_SCHEMES: Final[dict[str, Backend]] = {"file": "local", "s3": "s3", "gs": "gcs", "az": "azure"}
_BACKENDS: Final = {"local": "file", "pvc": "file", "s3": "s3", "minio": "s3", "gcs": "gs", "azure": "az"}
_GIVEN: Final = ("endpoint", "region", "access_key", "secret_key")


def open_store(url: str) -> ObjectPayloadStore:
    """Open the store at a URL; nothing is contacted yet."""
    from noetl.kernel.payloads.keys import FileTenantKeys
    from noetl.kernel.payloads.objects.connect import Connection, open_object_store

    parts = urlsplit(url)
    backend = _SCHEMES.get(parts.scheme)
    if backend is None:
        raise ConfigError(f"payloads_url starts with none of {', '.join(f'{name}://' for name in _SCHEMES)}")
    query = dict(parse_qsl(parts.query))
    more: dict[str, Any] = {name: query.pop(name, None) for name in _GIVEN}
    keys = query.pop("keys", None)
    allow_http = query.pop("allow_http", "false") == "true"
    if query:
        raise ConfigError(f"payloads_url has no parameters {', '.join(sorted(query))}")
    path = unquote(parts.path)
    place = {"path": Path(path)} if backend == "local" else {"bucket": parts.netloc, "prefix": path.strip("/")}
    connection = Connection(backend=backend, allow_http=allow_http, **place, **more)
    return open_object_store(connection, keys=None if keys is None else FileTenantKeys(Path(keys)))


def store_url(settings: Mapping[str, Any]) -> str:
    """Return the URL of the store that plain settings of a runtime name."""
    chosen, home = settings["payload_store"], Path(settings["runtime"]["home"])
    place = chosen["connection"]
    scheme = _BACKENDS.get(chosen["backend"])
    if scheme is None:
        raise ConfigError(f"payloads of the backend {chosen['backend']!r} cannot be read on Spark")
    query = {name: place[name] for name in _GIVEN if place.get(name)}
    if place.get("allow_http"):
        query["allow_http"] = "true"
    if chosen.get("encryption_at_rest"):
        query["keys"] = str(chosen.get("key_directory") or home / "keys")
    if scheme == "file":
        path = str(place.get("path") or home / "payloads")
        located = f"file://{quote(path)}"
    else:
        located = f"{scheme}://{place['bucket']}/{quote(place.get('prefix') or '')}"
    return f"{located}?{urlencode(query)}" if query else located
