"""The kinds of tasks that use stores elsewhere, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.kinds import SCRIPT, TIMEOUT, Kind
from noetl.playbook.kinds_of_data import sql_fields
from noetl.playbook.shapes import (
    ANYTHING,
    BINDINGS,
    TEXT,
    Alternatives,
    Choice,
    Either,
    Field,
    ListOf,
    Template,
    Whole,
    templated,
)

_SNOWFLAKE, _SNOWFLAKE_ONE = sql_fields("script")
_DUCKLAKE, _DUCKLAKE_ONE = sql_fields()

STORE_KINDS: Final[Mapping[str, Kind]] = {
    "snowflake": Kind(
        "Runs SQL statements in Snowflake.",
        {
            **_SNOWFLAKE,
            "script": Field(SCRIPT, "Statements kept elsewhere, run as they are: their address, or where they are and how to get them."),
            "params": Field(Either((ListOf(ANYTHING), BINDINGS, Template())), "Parameters of the statements."),
            "timeout": TIMEOUT,
        },
        (_SNOWFLAKE_ONE,),
    ),
    "ducklake": Kind(
        "Runs SQL statements in DuckDB on the tables of a DuckLake catalog.",
        {
            **_DUCKLAKE,
            "catalog_connection": Field(TEXT, "The catalog's database: postgresql://…, sqlite:file or a DuckDB file; auth tells if left out."),
            "catalog_name": Field(TEXT, "What SQL calls the catalog; lake if left out."),
            "data_path": Field(TEXT, "Where the tables' files are kept; every worker must reach it."),
            "params": Field(Either((ListOf(ANYTHING), BINDINGS, Template())), "Parameters of the statements."),
            "timeout": TIMEOUT,
        },
        (_DUCKLAKE_ONE,),
    ),
    "gcs": Kind(
        "Writes, reads, lists or deletes objects of Google Cloud Storage.",
        {
            "operation": Field(
                templated(Choice(("put", "upload", "get", "download", "list", "delete"))), "What to do; put if left out."
            ),
            "uri": Field(TEXT, "The object, or the beginning of those that are listed, as gs://bucket/object."),
            "destination": Field(TEXT, "Another word for uri, of an upload."),
            "bucket": Field(TEXT, "The bucket, in place of uri."),
            "object": Field(TEXT, "The object in the bucket."),
            "prefix": Field(TEXT, "The beginning of the objects that are listed in the bucket."),
            "source": Field(TEXT, "A file of the worker to put."),
            "data": Field(ANYTHING, "What to put: text as it is, anything else as JSON."),
            "content_type": Field(TEXT, "The object's media type; told from its name if left out."),
            "metadata": Field(templated(BINDINGS), "Further attributes of the object."),
            "limit": Field(templated(Whole(1)), "Objects listed at most; 1,000 if left out."),
            "timeout": TIMEOUT,
        },
        (
            Alternatives({"uri": "uri", "destination": "uri", "bucket": "bucket"}, required=True),
            Alternatives({"source": "source", "data": "data"}),
        ),
    ),
}  # fmt: skip
