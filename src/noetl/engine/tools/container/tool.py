"""The `container` tool: it chooses where a container runs, runs it there and tells how it ended."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, ClassVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import ValidationError

from noetl.engine.tools.container.cluster import cluster_of, is_configured, looked_for
from noetl.engine.tools.container.engine import EngineRun, engine_on_path
from noetl.engine.tools.container.job import JobRun
from noetl.engine.tools.container.outcomes import outcome_of, refused
from noetl.engine.tools.container.request import Request, Script, read_request
from noetl.engine.tools.outcome import Outcome, failed, refusal
from noetl.engine.tools.port import Call
from noetl.engine.tools.programs.process import ahead_of
from noetl.engine.tools.programs.source import load_script, read_spec
from noetl.errors import InputError, NoetlError, Unsupported

_INTERPRETERS = {".py": "python3", ".sh": "/bin/sh"}


class ContainerTool:
    """Runs containers."""

    kind: ClassVar[str] = "container"

    async def run(self, call: Call) -> Outcome:
        """Run the container of one call."""
        return await run_container(call)


async def run_container(call: Call, described: dict[str, Any] | None = None) -> Outcome:
    """Run a container that a call's own fields, or `described`, describe; the call's `script` is put into it."""
    try:
        script = None if call.options.get("script") is None else await _script(call)
        request = read_request(call, script, described)
        runtime, program = _chosen(request, call)
        if runtime == "kubernetes":
            return await _in_cluster(call, request)
        return outcome_of(await EngineRun(program, request).run(ahead_of(request.seconds)))
    except NoetlError as error:
        return refusal(error, ContainerTool.kind)


async def _in_cluster(call: Call, request: Request) -> Outcome:
    try:
        cluster = await cluster_of(call)
        return outcome_of(await JobRun(cluster, request).run(ahead_of(request.seconds)))
    except (aiohttp.ClientError, OSError) as error:
        message = f"the cluster does not answer: {type(error).__name__}"
        return failed("connection", message, source=ContainerTool.kind, retryable=True, code="cluster_unreachable")
    except ValidationError as error:
        # The values that are wrong may be secret, so only their places are told.
        places = sorted({".".join(map(str, each["loc"][1:])) for each in error.errors(include_input=False)})
        message = f"the cluster's client refuses {', '.join(places)}"
        return failed("schema", message, source=ContainerTool.kind, code="manifest_invalid")
    except Exception as error:
        # The client's own errors have no type that is known without the client.
        if not hasattr(error, "status") or not hasattr(error, "body"):
            raise
        return refused(error, f"the Job {request.name}")


def _chosen(request: Request, call: Call) -> tuple[str, str]:
    """Return where a container runs, and the program of the engine."""
    if request.runtime == "kubernetes" or (request.runtime == "auto" and is_configured(call)):
        return "kubernetes", ""
    program = engine_on_path(request.runtime)
    if program is not None:
        return PurePosixPath(program).name, program
    if request.runtime != "auto":
        raise Unsupported(f"runtime: there is no program {request.runtime} on this worker's PATH")
    raise Unsupported(
        "this worker can run no containers: there is neither a cluster nor an engine."
        f" Looked for {looked_for()}, and for the programs docker and podman on PATH."
    )


async def _script(call: Call) -> Script:
    given = call.options["script"]
    uri, _, _ = read_spec(given)
    suffix = PurePosixPath(urlsplit(uri).path).suffix
    if suffix not in _INTERPRETERS:
        raise InputError(f"script.uri: {uri} ends neither in .py nor in .sh, so how to run it is not known")
    return Script(f"main{suffix}", await load_script(given, call), _INTERPRETERS[suffix])
