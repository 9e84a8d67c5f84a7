"""The kinds of tasks that move data, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.language.grammar.shapes import (
    ANYTHING,
    BINDINGS,
    FLAG,
    TEXT,
    Alternatives,
    Choice,
    Either,
    Field,
    ListOf,
    MapOf,
    Number,
    Record,
    Template,
    Text,
    Whole,
    templated,
)
from noetl.language.playbook.kinds.kind import (
    BASE64,
    ONE_TIMEOUT,
    SCRIPT,
    STATEMENTS,
    SWITCH,
    TIMEOUT,
    TIMEOUT_SECONDS,
    Kind,
)

_SQL_NAMES: Final = ("command", "query", "commands", "queries", "cmd", "cmds")


def sql_fields(*more: str) -> tuple[dict[str, Field], Alternatives]:
    """Return the fields that SQL may stand in, and that exactly one of these and of `more` is given."""
    fields = {name: Field(STATEMENTS, "The statements; the last one's rows are the result.") for name in _SQL_NAMES}
    fields |= {f"{name}_b64": Field(BASE64, "The statements in base64.") for name in _SQL_NAMES}
    into = dict.fromkeys(fields, "command") | {name: name for name in more}
    return fields, Alternatives(into, required=True)


_POSTGRES, _POSTGRES_ONE = sql_fields("script")
_DUCKDB, _DUCKDB_ONE = sql_fields()
_POOL: Final = Record(
    "pool",
    {
        "size": Field(templated(Whole(1)), "Connections a worker opens at most; those of the credential, or 8."),
        "max_size": Field(templated(Whole(1)), "Another word for size."),
    },
    extra="ignored",
    alternatives=(Alternatives({"size": "size", "max_size": "size"}),),
)
_BODY: Final = {
    "body": "The body: text as it is, anything else as JSON; a mapping as form fields if the content type is a form's.",
    "payload": "Another word for body.",
    "json": "The body as JSON, text too.",
    "data": "Like body, but text that is no JSON counts as form fields.",
    "form": "The body as form fields, or in parts if one of them is a file.",
}
_END: Final = {
    "type": Field(templated(Choice(("postgres", "duckdb", "snowflake", "http"))), "The kind of system.", required=True),
    "auth": Field(ANYTHING, "The credential for it."),
    "table": Field(TEXT, "The table, for databases."),
    "database": Field(TEXT, "The database file, for duckdb; one of the execution on this worker if left out."),
    "url": Field(TEXT, "The address, for http."),
    "headers": Field(templated(BINDINGS), "HTTP headers."),
    "params": Field(templated(BINDINGS), "The parameters of the address's query."),
}
_MODE: Final = templated(Choice(("append", "overwrite", "replace", "upsert")))
_METHOD: Final = templated(Text(r"[A-Za-z]+", "an HTTP method"))

DATA_KINDS: Final[Mapping[str, Kind]] = {
    "http": Kind(
        "Sends one HTTP request.",
        {
            "method": Field(_METHOD, "The method; GET if left out."),
            "url": Field(TEXT, "The address.", required=True),
            "headers": Field(templated(BINDINGS), "Headers."),
            "params": Field(templated(BINDINGS), "The query's parameters."),
            **{name: Field(ANYTHING, doc) for name, doc in _BODY.items()},
            "timeout": TIMEOUT,
            "timeout_seconds": TIMEOUT_SECONDS,
            "follow_redirects": Field(SWITCH, "Whether redirects are followed."),
            "verify_ssl": Field(SWITCH, "Whether the server's certificate is checked."),
        },
        (Alternatives(dict.fromkeys(_BODY, "body")), ONE_TIMEOUT),
    ),
    "postgres": Kind(
        "Runs SQL statements in PostgreSQL.",
        {
            **_POSTGRES,
            "script": Field(SCRIPT, "Statements kept elsewhere, run as they are: their address, or where they are and how to get them."),
            "params": Field(Either((ListOf(ANYTHING), BINDINGS, Template())), "Parameters of the statement."),
            "pool": Field(Either((FLAG, _POOL, Template())), "Options of the connection pool."),
            "timeout": TIMEOUT,
        },
        (_POSTGRES_ONE,),
    ),
    "duckdb": Kind(
        "Runs SQL statements in DuckDB.",
        {
            **_DUCKDB,
            "database": Field(TEXT, "The database: :memory: or a file; one of the execution on this worker if left out."),
            "params": Field(Either((ListOf(ANYTHING), BINDINGS, Template())), "Parameters of the statement."),
            "db_type": Field(TEXT, "The kind of database that is attached."),
            "gcs_credential": Field(TEXT, "The credential for Google Cloud Storage."),
            "require_cloud_output": Field(SWITCH, "Whether writing only to local files is an error."),
            "auto_secrets": Field(SWITCH, "Whether credentials become secrets in DuckDB."),
            "timeout": TIMEOUT,
        },
        (_DUCKDB_ONE,),
    ),
    "transfer": Kind(
        "Copies rows from one system to another.",
        {
            "source": Field(
                Record(
                    "source",
                    {
                        **_END,
                        "query": Field(TEXT, "The query, in place of a table."),
                        "method": Field(_METHOD, "The HTTP method; GET if left out."),
                        "data_path": Field(TEXT, "The path of the rows in the answer, for http."),
                    },
                ),
                "Where rows come from.",
                required=True,
            ),
            "target": Field(
                Record(
                    "target",
                    {
                        **_END,
                        "mapping": Field(MapOf(TEXT), "Columns of the target, each with the source's column."),
                        "mode": Field(_MODE, "How rows are written."),
                        "key": Field(Either((TEXT, ListOf(TEXT, 1))), "The columns that tell rows apart, for upsert."),
                        "method": Field(_METHOD, "The HTTP method, with each chunk as its JSON body; POST if left out."),
                    },
                    removed={"query": "write table, with mapping, mode and key"},
                ),
                "Where rows go.",
                required=True,
            ),
            "mode": Field(_MODE, "How rows are written, where the target does not say so."),
            "mapping": Field(MapOf(TEXT), "Columns of the target, each with the source's column, where the target has none."),
            "chunk_size": Field(templated(Whole(1)), "Rows copied at once."),
            "timeout": TIMEOUT,
        },
    ),
    "nats": Kind(
        "Uses NATS: its key-value store, its object store, a stream or a subject.",
        {
            "operation": Field(
                Choice(
                    (
                        "kv_get", "kv_put", "kv_delete", "kv_keys", "object_get", "object_put", "object_delete",
                        "object_list", "publish", "js_publish", "js_get_msg", "js_consume",
                    )
                ),
                "What to do.",
                required=True,
            ),
            "url": Field(TEXT, "The servers, where no credential names them."),
            "bucket": Field(TEXT, "The bucket."),
            "key": Field(TEXT, "The key; for kv_keys, which keys."),
            "object": Field(TEXT, "The name of the object."),
            "value": Field(ANYTHING, "What is written: text as it is, anything else as JSON."),
            "data": Field(ANYTHING, "Another word for value."),
            "payload": Field(ANYTHING, "Another word for value."),
            "message": Field(ANYTHING, "Another word for value."),
            "stream": Field(TEXT, "The stream."),
            "subject": Field(TEXT, "The subject."),
            "headers": Field(BINDINGS, "The message's headers."),
            "sequence": Field(templated(Whole(1)), "The message's number in the stream."),
            "consumer": Field(TEXT, "The durable consumer."),
            "durable": Field(TEXT, "Another word for consumer."),
            "batch": Field(templated(Whole(1)), "Messages taken at most."),
            "ack": Field(SWITCH, "Whether messages are acknowledged."),
            "timeout": Field(templated(Number(positive=True)), "Seconds to wait for the answer or for messages."),
        },
        (
            Alternatives(dict.fromkeys(("value", "data", "payload", "message"), "value")),
            Alternatives({"consumer": "consumer", "durable": "consumer"}),
            Alternatives({"object": "name"}),
        ),
        waits=True,
    ),
}  # fmt: skip
