"""Opens buckets of Google Cloud Storage: a bucket's name and a credential go in, a store comes out."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import InputError
from noetl.execute.tools.port import Call

if TYPE_CHECKING:
    from obstore.store import GCSCredential, ObjectStore

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
