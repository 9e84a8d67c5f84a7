"""The kinds of tasks that ask servers of other people's making, each with its own fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.kinds import STATEMENTS, SWITCH, TIMEOUT, Kind
from noetl.playbook.shapes import (
    ANYTHING,
    BINDINGS,
    TEXT,
    Alternatives,
    Either,
    Field,
    ListOf,
    MapOf,
    Template,
    templated,
)

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
            "client_name": Field(TEXT, "What the server is told of who asks; noetl if left out."),
            "client_version": Field(TEXT, "The version of who asks."),
            "capabilities": Field(ANYTHING, "Without effect: a task offers none."),
            "request_id": Field(ANYTHING, "Without effect: requests are numbered."),
            "timeout": TIMEOUT,
        },
        (Alternatives({"endpoint": "endpoint", "url": "endpoint"}),),
    ),
}  # fmt: skip
