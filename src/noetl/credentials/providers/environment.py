"""Secrets from variables of the process. Only names the operator allows are read, and never a setting of NoETL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from noetl.credentials.providers.port import FetchOptions, fields_of
from noetl.errors import Denied, NotFound

ALLOWED = ("SECRET_*",)


class EnvironmentSecrets:
    """Reads environment variables whose names match a pattern; anyone who may write a playbook may read these."""

    def __init__(self, environ: Mapping[str, str], allowed: Sequence[str] = ALLOWED) -> None:
        self._environ = environ
        self._allowed = tuple(allowed)

    async def fetch(self, name: str, options: FetchOptions) -> dict[str, str]:
        """Return the fields of a variable."""
        if name.startswith("NOETL_") or not any(fnmatchcase(name, pattern) for pattern in self._allowed):
            raise Denied(
                f"the environment variable {name!r} is not one that playbooks may read",
                hint=f"name it like {' or '.join(self._allowed)}",
            )
        text = self._environ.get(name)
        if not text:
            raise NotFound(f"the environment variable {name!r} is not set where this runs")
        return fields_of(text)
