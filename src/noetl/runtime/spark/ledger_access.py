"""How Spark's driver and executors reach the ledger and its archives: told as plain values, never recorded or shown."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Secret

from noetl.runtime.wiring import Runtime
from noetl.spark.source.payload_store import store_url

_BACKENDS: Final = {"azure-blob": "azure", "seaweedfs": "minio"}


def ledger_reach(runtime: Runtime) -> dict[str, Any]:
    """Return what a program that reads the ledger is told."""
    settings = runtime.settings
    return {
        "database_url": runtime.database.url,
        "as_roles": settings.database.url is None,
        "upcasters": list(settings.projections.upcasters),
        "payloads_url": _payloads_url(runtime),
    }


def _payloads_url(runtime: Runtime) -> str:
    """Return where archived months of the ledger are; nothing where that is memory, which has none."""
    own = runtime.settings.payload_store
    if own.backend == "memory":
        return ""
    place = {name: _plain(getattr(own.connection, name)) for name in type(own.connection).model_fields}
    told = {
        "backend": _BACKENDS.get(own.backend, own.backend),
        "connection": place | {"path": str(runtime.settings.payload_directory.absolute())},
        "encryption_at_rest": own.encryption_at_rest,
        "key_directory": str(runtime.settings.key_directory.absolute()),
    }
    return store_url({"payload_store": told, "runtime": {"home": str(runtime.settings.runtime.home.absolute())}})


def _plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, Secret) else value
