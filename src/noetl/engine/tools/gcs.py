"""The `gcs` kind: one operation on objects of a Google Cloud Storage bucket per task."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions

from noetl.engine.confinement.policy import refuse_hidden
from noetl.engine.tools.json_text import write_json
from noetl.engine.tools.outcome import Outcome, ProblemKind, failed, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.errors import InputError, NoetlError

if TYPE_CHECKING:
    from obstore.store import GCSCredential, ObjectStore


MAX_READ: Final = 16 * 1024 * 1024
"""How large an object may be whose content becomes a result."""
_LISTED: Final = 1000


class Place(NamedTuple):
    """A bucket and a key in it, or the beginning of keys."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        """The address."""
        return f"gs://{self.bucket}/{self.key}"


class GcsTool:
    """Works on objects."""

    kind: ClassVar[str] = "gcs"

    async def run(self, call: Call) -> Outcome:
        """Do the operation of one call."""
        name = str(call.options.get("operation") or "put")
        operation = _OPERATIONS.get(name)
        if operation is None:
            return failed("schema", f"operation: {name!r} is none of {', '.join(_OPERATIONS)}", source=self.kind)
        try:
            place = _place(call, whole=name != "list")
            async with asyncio.timeout(ahead_of(call.timeout)):
                return Outcome(data=await operation(call, await store_of(call, place.bucket), place))
        except NoetlError as error:
            return refusal(error, self.kind)
        except Exception as error:
            return _problem(error, name)


async def _put(call: Call, store: Any, place: Place) -> dict[str, Any]:
    options = call.options
    content: Any
    if options.get("source") is not None:
        content = Path(str(options["source"]))
        await asyncio.to_thread(refuse_hidden, content)
        if not await asyncio.to_thread(content.is_file):
            raise InputError(f"source: there is no file {content}")
        size = (await asyncio.to_thread(content.stat)).st_size
    else:
        given = options.get("data", call.input.get("data"))
        if given is None:
            raise InputError("a gcs task that puts needs `source`, a file, or `data`")
        content = given.encode() if isinstance(given, str) else write_json(given)
        size = len(content)
    guessed = mimetypes.guess_type(str(options.get("source") or place.key))[0]
    kind = str(options.get("content_type") or guessed or "application/octet-stream")
    attributes = {"Content-Type": kind, **_texts(options.get("metadata"))}
    await obstore.put_async(store, place.key, content, attributes=attributes)
    return {"status": "ok", "uri": place.uri, "bucket": place.bucket, "object": place.key, "size": size}


async def _get(call: Call, store: Any, place: Place) -> dict[str, Any]:
    found = await obstore.get_async(store, place.key)
    size = found.meta["size"]
    told = {"status": "ok", "uri": place.uri, "bucket": place.bucket, "object": place.key, "size": size}
    if size > MAX_READ:
        raise InputError(f"{place.uri} has {size} bytes, and a result takes {MAX_READ}; read it in a duckdb task")
    data = bytes(await found.bytes_async())
    try:
        return {**told, "content": data.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {**told, "content": base64.b64encode(data).decode(), "encoding": "base64"}


async def _list(call: Call, store: Any, place: Place) -> dict[str, Any]:
    limit = int(call.options.get("limit") or _LISTED)
    objects: list[dict[str, Any]] = []
    async for chunk in obstore.list(store, place.key or None, chunk_size=min(limit, _LISTED) or 1):
        for one in chunk:
            when = one["last_modified"].isoformat()
            objects.append({"object": one["path"], "size": one["size"], "updated": when, "etag": one["e_tag"]})
        if len(objects) >= limit:
            break
    objects = objects[:limit]
    return {"status": "ok", "bucket": place.bucket, "prefix": place.key, "objects": objects, "count": len(objects)}


async def _delete(call: Call, store: Any, place: Place) -> dict[str, Any]:
    await obstore.delete_async(store, place.key)
    return {"status": "ok", "uri": place.uri, "bucket": place.bucket, "object": place.key}


_OPERATIONS: Final[Mapping[str, Callable[[Call, Any, Place], Awaitable[dict[str, Any]]]]] = {
    "put": _put,
    "upload": _put,
    "get": _get,
    "download": _get,
    "list": _list,
    "delete": _delete,
}


def _place(call: Call, *, whole: bool) -> Place:
    address = call.options.get("uri")
    if address is not None:
        parts = urlsplit(str(address))
        if parts.scheme not in ("gs", "gcs") or not parts.netloc:
            raise InputError(f"uri: {address} is no address of the form gs://bucket/object")
        place = Place(parts.netloc, unquote(parts.path).lstrip("/"))
    else:
        key = call.options.get("object") or (None if whole else call.options.get("prefix"))
        place = Place(str(call.options.get("bucket") or ""), str(key or "").lstrip("/"))
    if not place.bucket or (whole and not place.key):
        raise InputError("a gcs task needs `uri`, or `bucket` and `object`")
    return place


def _texts(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError("metadata is a mapping of names to texts")
    return {str(name): str(value) for name, value in given.items()}


_PROBLEMS: Final[tuple[tuple[type[BaseException], ProblemKind, bool], ...]] = (
    (FileNotFoundError, "not_found", False),
    (exceptions.PermissionDeniedError, "auth", False),
    (exceptions.UnauthenticatedError, "auth", False),
    (exceptions.InvalidPathError, "schema", False),
    (exceptions.UnknownConfigurationKeyError, "schema", False),
    (TimeoutError, "timeout", True),
    (exceptions.BaseError, "connection", True),
    (OSError, "connection", True),
    (ValueError, "schema", False),
)


def _problem(error: Exception, name: str) -> Outcome:
    found = next(((kind, again) for known, kind, again in _PROBLEMS if isinstance(error, known)), None)
    if found is None:
        raise error
    # The library's words may quote an address with a signature, or a key that it cannot read.
    message = f"{name} failed: {type(error).__name__}"
    return failed(found[0], message, source=GcsTool.kind, retryable=found[1], exception_type=type(error).__name__)


_S3_ADDRESS: Final = "https://storage.googleapis.com"
_TOKENS: Final = ("bearer", "oauth2", "google_oauth", "google_id_token")
_OWN: Final = ("adc", "workload_identity", "metadata")
_AN_HOUR: Final = dt.timedelta(hours=1)


async def store_of(call: Call, bucket: str) -> ObjectStore:
    """Return the bucket as the identity that a call's `auth` names."""
    auth = call.auth
    if isinstance(auth, Mapping) and isinstance(named := auth.get("credential", auth.get("key")), str):
        auth = named
    if isinstance(auth, str):
        credential = await call.credentials.credential(auth)
        return _store(bucket, credential.type, credential.data)
    if auth is None:
        return _store(bucket, "nobody", {})
    if not isinstance(auth, Mapping):
        raise InputError("auth of a gcs task is the name of a credential, or {source: adc}")
    return _store(bucket, str(auth.get("source") or auth.get("type") or "service_account"), auth)


def _store(bucket: str, kind: str, data: Mapping[str, Any]) -> ObjectStore:
    from obstore.store import GCSStore, S3Store

    if kind in ("gcs_hmac", "hmac"):
        address = str(data.get("endpoint") or data.get("endpoint_url") or _S3_ADDRESS)
        return S3Store(
            bucket,
            access_key_id=_field(data, "access_key_id", "key_id", "access_key"),
            secret_access_key=_field(data, "secret_access_key", "secret", "secret_key"),
            endpoint=address,
            region=str(data.get("region") or "auto"),
            client_options={"allow_http": address.startswith("http://")},
        )
    if kind in _OWN:
        return GCSStore(bucket)
    if kind in _TOKENS:
        token = _field(data, "token", "access_token")
        # The store asks again when the hour is over; a task that takes longer then has a token that the server judges.
        return GCSStore(bucket, credential_provider=_Given(token))
    if kind == "nobody":
        # Without a credential only what is public is reached: the worker's own identity is not the playbook's.
        return GCSStore(bucket, skip_signature=True)
    if kind not in ("service_account", "gcs", "gcp", "google"):
        raise InputError(f"auth: a credential of type {kind} does not log in to Google Cloud Storage")
    key = data.get("service_account_json") or data.get("service_account_key") or dict(data)
    text = key if isinstance(key, str) else json.dumps(key)
    try:
        allow_http = str(json.loads(text).get("gcs_base_url") or "").startswith("http://")
    except (ValueError, AttributeError):
        raise InputError("auth: the service account of the credential is no JSON") from None
    return GCSStore(bucket, service_account_key=text, client_options={"allow_http": allow_http})


class _Given:
    """Hands out the token of a credential."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self) -> GCSCredential:
        return {"token": self._token, "expires_at": dt.datetime.now(dt.UTC) + _AN_HOUR}


def _field(data: Mapping[str, Any], *names: str) -> str:
    for name in names:
        if data.get(name):
            return str(data[name])
    raise InputError(f"the credential for Google Cloud Storage lacks {names[0]}")
