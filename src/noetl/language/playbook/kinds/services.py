"""The kinds of tasks that use servers and stores outside NoETL, each with its own fields."""

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
    Template,
    Whole,
    templated,
)
from noetl.language.playbook.kinds.data import sql_fields
from noetl.language.playbook.kinds.kind import SCRIPT, STATEMENTS, SWITCH, TIMEOUT, Kind

_OBJECT: Final = Either((BINDINGS, Template()))

SERVICE_KINDS: Final[Mapping[str, Kind]] = {
    "mcp": Kind(
        "Asks a server of the Model Context Protocol: over HTTP, or over the standard input and output of a program.",
        {
            "endpoint": Field(TEXT, "The server's address."),
            "url": Field(TEXT, "Another word for endpoint."),
            "server": Field(TEXT, "The credential that says where the server is, or which program it is; a label beside endpoint or command."),
            "command": Field(STATEMENTS, "The program that is the server, started for the task."),
            "args": Field(Either((ListOf(TEXT), Template())), "Arguments of the program."),
            "env": Field(MapOf(ANYTHING), "Variables of the program's environment."),
            "cwd": Field(TEXT, "The directory the program runs in."),
            "headers": Field(templated(BINDINGS), "HTTP headers."),
            "verify_ssl": Field(SWITCH, "Whether the server's certificate is checked."),
            "method": Field(TEXT, "What is asked: tools/call if left out, tools/list, resources/read, prompts/get, ping, and so on."),
            "tool": Field(TEXT, "The server's tool, for tools/call."),
            "arguments": Field(_OBJECT, "The tool's arguments, or their JSON text; input if left out."),
            "params": Field(_OBJECT, "What goes with other methods."),
            "protocol_version": Field(TEXT, "The version of the protocol that is offered to the server."),
            "client_name": Field(TEXT, "Name under which the task introduces itself to the server; `noetl` by default."),
            "client_version": Field(TEXT, "The version of who asks."),
            "capabilities": Field(ANYTHING, "Without effect: a task offers none."),
            "request_id": Field(ANYTHING, "Without effect: requests are numbered."),
            "timeout": TIMEOUT,
        },
        (Alternatives({"endpoint": "endpoint", "url": "endpoint"}),),
    ),
    "secrets": Kind(
        "Reads a secret of a secret manager; what is recorded is a reference to it, and tasks that read it are given the secret.",
        {
            "provider": Field(TEXT, "Where it is kept: env if left out, file, k8s, gcp, aws, azure or vault."),
            "name": Field(TEXT, "Its name where no other field says it; the label of the task besides."),
            "secret": Field(TEXT, "Its name."),
            "secret_name": Field(TEXT, "Another word for secret."),
            "path": Field(TEXT, "Another word for secret."),
            "key": Field(TEXT, "The one field of it that is wanted."),
            "version": Field(Either((TEXT, Whole(1))), "Its version; the latest if left out."),
            "project": Field(TEXT, "The project, for gcp."),
            "project_id": Field(TEXT, "Another word for project."),
            "region": Field(TEXT, "The region, for aws and gcp."),
            "vault": Field(TEXT, "The vault, for azure."),
            "mount": Field(TEXT, "Where the engine is mounted, for vault."),
            "kv_version": Field(Either((TEXT, Whole(1))), "The version of the engine, for vault."),
            "ttl": Field(templated(Number(positive=True)), "Seconds it is kept, encrypted, before it is read anew; 300 if left out."),
            "timeout": TIMEOUT,
        },
        (
            Alternatives({"secret": "secret", "secret_name": "secret", "path": "secret"}),
            Alternatives({"project": "project", "project_id": "project"}),
        ),
    ),
    "subscription": Kind(
        "Takes a bounded batch of messages from a broker; they are acknowledged once the step's end is recorded.",
        {
            "source": Field(templated(Choice(("nats", "kafka", "pubsub"))), "The broker.", required=True),
            "operation": Field(templated(Choice(("poll", "drain"))), "Take what is there; poll if left out, which is the same."),
            "batch": Field(templated(Whole(1)), "Messages taken at most; 100 if left out."),
            "max_messages": Field(templated(Whole(1)), "Another word for batch."),
            "timeout_ms": Field(templated(Number(positive=True)), "Milliseconds to wait for the first message; 5,000 if left out."),
            "timeout": Field(templated(Number(positive=True)), "The same in seconds."),
            "ack": Field(Either((FLAG, TEXT)), "When messages are acknowledged: on_success (true), as the step ends well, or never (false)."),
            "url": Field(TEXT, "The servers, for nats, where no credential names them."),
            "stream": Field(TEXT, "The stream, for nats."),
            "consumer": Field(TEXT, "The durable consumer, for nats; it is made if it is not there."),
            "durable": Field(TEXT, "Another word for consumer."),
            "subject": Field(TEXT, "Which subjects the consumer is made for, for nats; all if left out."),
            "brokers": Field(Either((TEXT, ListOf(TEXT, 1))), "The brokers, for kafka, where no credential names them."),
            "topic": Field(TEXT, "The topic, for kafka."),
            "group": Field(TEXT, "The consumer group, for kafka."),
            "subscription": Field(TEXT, "The subscription, for pubsub: its name, or projects/P/subscriptions/S."),
            "project": Field(TEXT, "The project, for pubsub."),
        },
        (
            Alternatives({"batch": "batch", "max_messages": "batch"}),
            Alternatives({"timeout_ms": "timeout_ms", "timeout": "timeout"}),
            Alternatives({"consumer": "consumer", "durable": "consumer"}),
        ),
        waits=True,
    ),
}  # fmt: skip


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
