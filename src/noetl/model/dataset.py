"""What a partition of a dataset consists of: a manifest of files, its schema, and the name of a partition."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from noetl.model.canonical import canonical_json

ALL: Final = "all"
"""The one partition of a dataset without partition columns."""
MANIFEST_TYPE: Final = "application/vnd.noetl.manifest+json"
NULL_VALUE: Final = "__null__"
_SAFE: Final = "._-"


class Field(msgspec.Struct, frozen=True):
    """A column, its type spelled as Spark's `simpleString` does."""

    name: str
    type: str
    nullable: bool = True


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One Parquet file. `path` is relative to the lake; `added` is the partition version whose commit brought it."""

    path: str
    bytes: int
    rows: int
    sha256: str
    added: int = 0
    stats: dict[str, Any] = {}
    """Per column: `min`, `max`, `nulls`, where the footer has them, as JSON values."""
    stamp: str = ""
    """What its store said when it was written: `mtime:` of a local file, `version:` or `etag:` of an object."""
    footer: str = ""
    """How many bytes its footer has, with the length and mark that end the file, and their SHA-256: `1234:ab…`."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is visible of one partition at one version; only files named here exist for a reader."""

    dataset_version: str
    partition_key: str
    version: int
    """The partition's version: 1 for its first commit, dense."""
    schema: tuple[Field, ...]
    files: tuple[FileEntry, ...] = ()

    @property
    def row_count(self) -> int:
        """Rows a reader sees."""
        return sum(entry.rows for entry in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.bytes for entry in self.files)

    @property
    def schema_hash(self) -> str:
        """A digest of names, types and nullability in their order."""
        return schema_hash(self.schema)

    @property
    def content_digest(self) -> str:
        """A digest of what a reader sees: schema and file contents, whatever the files are called."""
        contents = sorted(entry.sha256 for entry in self.files)
        return hashlib.sha256(canonical_json([self.schema_hash, contents])).hexdigest()

    def added_since(self, version: int) -> tuple[FileEntry, ...]:
        """Return the files that commits after a version brought."""
        return tuple(entry for entry in self.files if entry.added > version)


def schema_hash(schema: Sequence[Field]) -> str:
    """Digest a schema."""
    return hashlib.sha256(canonical_json([[one.name, one.type, one.nullable] for one in schema])).hexdigest()


def partition_key(columns: Sequence[str], values: Mapping[str, Any]) -> str:
    """Name the partition of these values: `day=2026-01-01/region=eu`, or `all` without columns."""
    if not columns:
        return ALL
    return "/".join(f"{name}={_written(values[name])}" for name in columns)


def partition_values(key: str) -> dict[str, str | None]:
    """Return a partition's values as text; none for `all`."""
    if key == ALL:
        return {}
    pairs = (part.partition("=") for part in key.split("/"))
    return {name: None if value == NULL_VALUE else unquote(value) for name, _, value in pairs}


def projected(key: str, columns: Sequence[str]) -> str:
    """Return the partition that holds this one when only some of its columns matter."""
    values = partition_values(key)
    return partition_key(columns, {name: values.get(name) for name in columns})


def _written(value: Any) -> str:
    return NULL_VALUE if value is None else quote(str(value), safe=_SAFE)
