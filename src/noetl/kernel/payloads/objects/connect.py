"""Plain connection settings go in, a payload store comes out. Nothing is contacted before the first use."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from noetl.errors import ConfigError
from noetl.kernel.payloads.keys import TenantKeys
from noetl.kernel.payloads.objects.bucket import Bucket
from noetl.kernel.payloads.objects.local import LocalBucket
from noetl.kernel.payloads.objects.store import DEFAULT_GRACE, ObjectPayloadStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Backend = Literal["local", "pvc", "s3", "minio", "gcs", "azure", "memory"]
"""`pvc` is local files on a mounted volume, `minio` is any S3-compatible server at an endpoint of its own."""

_RETRY: RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where payloads are kept. Credentials that are left out are looked for where the backend's own tools look."""

    backend: Backend = "local"
    path: Path | None = None
    bucket: str | None = None
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    allow_http: bool = False
    timeout: float = 600.0


def open_object_store(
    connection: Connection,
    *,
    compress: bool = False,
    keys: TenantKeys | None = None,
    grace: timedelta = DEFAULT_GRACE,
) -> ObjectPayloadStore:
    """Open the store of a connection; with `keys`, payloads are encrypted before they leave the process."""
    return ObjectPayloadStore(open_bucket(connection), compress=compress, keys=keys, grace=grace)


def open_bucket(connection: Connection) -> Bucket:
    """Open the bucket of a connection."""
    prefix = connection.prefix
    match connection.backend:
        case "memory":
            return Bucket(MemoryStore(), tier="memory", base_uri="memory:/", prefix=prefix)
        case "local" | "pvc":
            if connection.path is None:
                raise ConfigError(f"payload backend {connection.backend!r} needs a path")
            tier: Literal["disk", "pvc"] = "disk" if connection.backend == "local" else "pvc"
            return LocalBucket(connection.path, tier=tier, prefix=prefix)
        case "s3" | "minio":
            base = f"s3://{_bucket_name(connection)}"
            return Bucket(_s3(connection), tier=connection.backend, base_uri=base, prefix=prefix)
        case "gcs":
            base = f"gs://{_bucket_name(connection)}"
            return Bucket(_gcs(connection), tier="gcs", base_uri=base, prefix=prefix)
        case "azure":
            base = f"az://{_bucket_name(connection)}"
            return Bucket(_azure(connection), tier="object", base_uri=base, prefix=prefix)


def _s3(connection: Connection) -> S3Store:
    if connection.backend == "minio" and connection.endpoint is None:
        raise ConfigError("payload backend 'minio' needs an endpoint, such as http://localhost:9000")
    config = _given(
        endpoint=connection.endpoint,
        region=connection.region or ("us-east-1" if connection.endpoint else None),
        access_key_id=connection.access_key,
        secret_access_key=connection.secret_key,
    )
    return S3Store(
        _bucket_name(connection),
        config=config,  # type: ignore[arg-type]
        client_options=_client(connection),
        retry_config=_RETRY,
    )


def _gcs(connection: Connection) -> GCSStore:
    config = _given(base_url=connection.endpoint, service_account_key=connection.secret_key)
    return GCSStore(
        _bucket_name(connection),
        config=config,  # type: ignore[arg-type]
        client_options=_client(connection),
        retry_config=_RETRY,
    )


def _azure(connection: Connection) -> AzureStore:
    config = _given(endpoint=connection.endpoint, account_name=connection.access_key, account_key=connection.secret_key)
    return AzureStore(
        _bucket_name(connection),
        config=config,  # type: ignore[arg-type]
        client_options=_client(connection),
        retry_config=_RETRY,
    )


def _client(connection: Connection) -> ClientConfig:
    # The time-out covers a whole download, and the default of 30 s would cut large payloads off.
    return {"allow_http": connection.allow_http, "timeout": timedelta(seconds=connection.timeout)}


def _given(**settings: str | None) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


def _bucket_name(connection: Connection) -> str:
    if not connection.bucket:
        raise ConfigError(f"payload backend {connection.backend!r} needs a bucket")
    return connection.bucket
