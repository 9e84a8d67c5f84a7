"""The description of the API: sound, complete, and true of what the server does with generated input."""

from __future__ import annotations

import asyncio
import re

from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.integration.api.generated_requests import failures_of
from tests.integration.api.serving import LOOP, TWO_STEPS, Server

from noetl.api.openapi import document
from noetl.api.routes.all_routes import endpoints


def test_every_route_is_described_with_what_it_takes_and_gives() -> None:
    described = document(endpoints(), "1.2.3")
    assert list(OpenAPIV31SpecValidator(described).iter_errors()) == []
    operations = {(path, method) for path, item in described["paths"].items() for method in item}
    assert operations == {(one.template, one.method.lower()) for one in endpoints()}
    names = []
    for path, item in described["paths"].items():
        for operation in item.values():
            names.append(operation["operationId"])
            assert operation["summary"].endswith("."), path
            placed = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert placed == set(re.findall(r"{(\w+)}", path))
    assert len(names) == len(set(names))


def test_ids_are_text_wherever_they_stand() -> None:
    schemas = document(endpoints(), "1.2.3")["components"]["schemas"]
    assert schemas["CommandGrant"]["properties"]["execution_id"]["type"] == "string"
    assert schemas["FrameGrant"]["properties"]["frame_id"]["type"] == "string"
    assert schemas["CommandLease"]["properties"]["execution_id"]["type"] == "string"


async def test_the_description_is_served(server: Server) -> None:
    served = await server.call("GET", "/api/openapi.json", status=200)
    assert served == document(endpoints(), "1.2.3")


async def test_no_generated_request_makes_the_server_fail(server: Server) -> None:
    await server.register(TWO_STEPS)
    await server.register(LOOP)
    await server.start("tests/two")
    await server.start("tests/loop")
    described = await server.call("GET", "/api/openapi.json", status=200)
    # What waits on purpose would only make the test wait.
    described["components"]["schemas"]["ClaimRequest"]["properties"]["wait_seconds"] = {"const": 0}
    described["components"]["schemas"]["ChildRequest"]["properties"]["wait_seconds"] = {"const": 1}
    described["paths"]["/api/executions/{execution_id}"]["get"]["parameters"].pop()
    failures = await asyncio.to_thread(failures_of, described, server.url)
    assert not failures, "\n".join(failures)
