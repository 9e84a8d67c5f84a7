"""What of a job's definition decides its rows: a job goes in, a plain value to be digested comes out."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.dag.model import Job

_DECIDES_NO_ROW: Final = (
    "name", "activation", "source", "reset_outputs", "idle_timeout", "max_concurrency", "timeout_seconds",
    "heartbeat_timeout_seconds", "max_attempts", "spark",
)  # fmt: skip
"""What a job may change without its rows becoming others."""


def deciding_definition(job: Job) -> dict[str, Any]:
    """Return all of a job that decides its rows, without what equals its default: fields to come change no digest."""
    return {key: one for key, one in _told(job).items() if key not in _DECIDES_NO_ROW}


def _told(value: Any) -> Any:
    # Not `omit_defaults`: that goes by identity, so equal jobs would differ by where their texts came from.
    if isinstance(value, msgspec.Struct):
        told = ((field, getattr(value, field.name)) for field in msgspec.structs.fields(type(value)))
        return {field.encode_name: _told(one) for field, one in told if field.required or one != _default(field)}
    if isinstance(value, dict):
        return {key: _told(one) for key, one in value.items()}
    return [_told(one) for one in value] if isinstance(value, list | tuple) else value


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
