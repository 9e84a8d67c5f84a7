"""The description of the API: sound, complete, and true of what the server does with generated input."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests.unit.api.serving import LOOP, TWO_STEPS, Server

from noetl.api.openapi import document
from noetl.api.routes.all_routes import endpoints

EXAMPLES = 3
"""Per operation, the same in every run; few enough to stay within seconds."""


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
    failures = await asyncio.to_thread(_failures, described, server.url)
    assert not failures, "\n".join(failures)


def _failures(described: dict[str, Any], url: str) -> list[str]:
    failures: list[str] = []
    schema = schemathesis.openapi.from_dict(described)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy())
            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            def probe(case: Any) -> None:
                answer = case.call(base_url=url, session=session)
                if answer.status_code >= 500:
                    failures.append(f"{case.method} {case.formatted_path} {case.query} {case.body!r}: {answer.text}")

            probe()
    return failures
