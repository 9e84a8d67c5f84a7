"""Where scripts come from: the address of a file, a web page or an object goes in, its text comes out.

Serves every kind that takes `script` in place of code, commands or SQL.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from noetl.engine.confinement.policy import refuse_hidden
from noetl.engine.tools.port import Call, Credential
from noetl.errors import Denied, InputError, NotFound, Unavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MAX_SCRIPT = 4 * 1024 * 1024
_FETCH_SECONDS = 60.0
_SCHEMES = {"": "file", "file": "file", "http": "http", "https": "http", "s3": "s3", "gs": "gcs", "gcs": "gcs"}


async def load_script(spec: Any, call: Call) -> str:
    """Return the text of a script, named by a URI or by `{uri, source: {type, auth}}`.

    Raises InputError for what cannot be read that way, NotFound, Denied, and Unavailable for what may work later.
    """
    uri, type_name, auth = read_spec(spec)
    credential = await _credential(auth, call)
    if type_name == "file":
        data = await _from_file(uri)
    elif type_name == "http":
        data = await _from_http(uri, credential)
    else:
        data = await _from_bucket(uri, type_name, credential)
    if len(data) > MAX_SCRIPT:
        raise InputError(f"the script {uri} is larger than {MAX_SCRIPT} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"the script {uri} is not text in UTF-8") from None


def read_spec(spec: Any) -> tuple[str, str, Any]:
    """Return the URI of a script, the type of its source and the name of the credential for it."""
    if isinstance(spec, str):
        spec = {"uri": spec}
    source = spec.get("source") or {} if isinstance(spec, Mapping) else None
    if not isinstance(source, Mapping) or not isinstance(spec.get("uri"), str):
        raise InputError("script takes a mapping with uri and source.{type, auth}")
    uri: str = spec["uri"]
    scheme = urlsplit(uri).scheme
    type_name = source.get("type") or _SCHEMES.get(scheme)
    if type_name not in set(_SCHEMES.values()):
        raise InputError(f"script.source.type: {type_name or scheme!r} is none of file, http, s3 and gcs")
    if scheme and _SCHEMES.get(scheme) != type_name:
        raise InputError(f"script.uri: {uri} is no address of the type {type_name}")
    return uri, type_name, source.get("auth")


async def _credential(auth: Any, call: Call) -> Credential | None:
    if auth is None:
        return None
    if isinstance(auth, str):
        return await call.credentials.credential(auth)
    raise InputError("script.source.auth is the name of a credential")


async def _from_file(uri: str) -> bytes:
    path = Path(unquote(urlsplit(uri).path) if uri.startswith("file:") else uri)
    await asyncio.to_thread(refuse_hidden, path)
    try:
        return await asyncio.to_thread(path.read_bytes)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise NotFound(f"there is no script {path}") from None
    except PermissionError:
        raise Denied(f"the script {path} may not be read by this worker") from None


async def _from_http(uri: str, credential: Credential | None) -> bytes:
    import aiohttp

    headers = _http_login(credential)
    try:
        timeout = aiohttp.ClientTimeout(total=_FETCH_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(uri, headers=headers) as answer:
            if answer.status in (401, 403):
                raise Denied(f"the server refuses the script {_shown(uri)} with status {answer.status}")
            if answer.status in (404, 410):
                raise NotFound(f"there is no script {_shown(uri)}")
            if answer.status == 429 or answer.status >= 500:
                raise Unavailable(f"the server answers status {answer.status} for the script {_shown(uri)}")
            if answer.status != 200:
                raise InputError(f"the server answers status {answer.status} for the script {_shown(uri)}")
            data = bytearray()
            async for piece in answer.content.iter_chunked(65_536):
                data += piece
                if len(data) > MAX_SCRIPT:
                    break
            return bytes(data)
    except aiohttp.InvalidURL:
        raise InputError(f"script.uri: {_shown(uri)} is no address") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        raise Unavailable(f"the script {_shown(uri)} cannot be fetched: {type(problem).__name__}") from None


def _shown(uri: str) -> str:
    """Return an address without what may be a secret in it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _http_login(credential: Credential | None) -> dict[str, str]:
    if credential is None:
        return {}
    match credential.type:
        case "basic":
            login = f"{_field(credential, 'username', 'user')}:{_field(credential, 'password')}"
            return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        case "bearer" | "oauth2":
            return {"Authorization": f"Bearer {_field(credential, 'token', 'access_token')}"}
        case "api_key":
            header = str(credential.data.get("header") or credential.data.get("header_name") or "X-API-Key")
            return {header: _field(credential, "key", "api_key", "value", "token")}
    raise InputError(f"script.source.auth: the type {credential.type} of {credential.name!r} does not log in to HTTP")


async def _from_bucket(uri: str, type_name: str, credential: Credential | None) -> bytes:
    import obstore
    from obstore import exceptions

    key = unquote(urlsplit(uri).path).lstrip("/")
    try:
        store = _bucket(urlsplit(uri).netloc, type_name, credential)
        found = await obstore.get_async(store, key)
        if found.meta["size"] > MAX_SCRIPT:
            raise InputError(f"the script {uri} is larger than {MAX_SCRIPT} bytes")
        return bytes(await found.bytes_async())
    except FileNotFoundError:
        raise NotFound(f"there is no script {uri}") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise Denied(f"the store refuses the script {uri}; check script.source.auth") from None
    except (exceptions.BaseError, OSError) as problem:
        raise Unavailable(f"the script {uri} cannot be fetched: {type(problem).__name__}") from None


def _bucket(name: str, type_name: str, credential: Credential | None) -> ObjectStore:
    from obstore.store import GCSStore, S3Store

    data = credential.data if credential else {}
    if type_name == "gcs" and (credential is None or credential.type != "gcs_hmac"):
        # Without a credential only what is public is read: the worker's own identity is not the playbook's.
        config: dict[str, Any] = {"skip_signature": True}
        if credential is not None:
            config = {"service_account_key": data.get("service_account_json") or json.dumps(dict(data))}
        return GCSStore(name, config=config)  # type: ignore[arg-type]
    endpoint = data.get("endpoint") or data.get("endpoint_url")
    config = {"region": str(data.get("region") or data.get("region_name") or "us-east-1")}
    if type_name == "gcs":
        endpoint = endpoint or "https://storage.googleapis.com"
    if endpoint:
        config["endpoint"] = str(endpoint)
    if credential is None:
        config["skip_signature"] = True
    else:
        names = ("access_key_id", "access_key", "aws_access_key_id", "key_id")
        config["access_key_id"] = _field(credential, *names)
        names = ("secret_access_key", "secret_key", "aws_secret_access_key", "secret")
        config["secret_access_key"] = _field(credential, *names)
    allow_http = str(endpoint).startswith("http://")
    return S3Store(name, config=config, client_options={"allow_http": allow_http})  # type: ignore[arg-type]


def _field(credential: Credential, *names: str) -> str:
    for name in names:
        if credential.data.get(name):
            return str(credential.data[name])
    raise InputError(f"the credential {credential.name!r} of type {credential.type} lacks {names[0]}")
