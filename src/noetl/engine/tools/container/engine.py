"""Runs a container in an engine of the worker's own, docker or podman, by its command line.

No value of the environment stands in an argument, where every process of the machine could read it: the engine reads
them from its standard input, and those with line breaks from its own environment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from noetl.engine.tools.container.outcomes import Ending
from noetl.engine.tools.container.request import SCRIPT_PLACE, Request
from noetl.engine.tools.programs.process import Ended, run_process
from noetl.errors import InputError, Unavailable

ENGINES: Final = ("docker", "podman")
_OF_CLUSTERS: Final = ("node_selector", "tolerations", "service_account", "image_pull_secrets")
_PULLING: Final = {"Always": "always", "IfNotPresent": "missing", "Never": "never"}
_PASSED_ON: Final = ("DOCKER_", "CONTAINER_", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")
_NOT_RUN: Final = 125
_KILLED: Final = 137
_TAKEN: Final = ("already in use", "is in use by container")


def engine_on_path(wanted: str) -> str | None:
    """Return the program of an engine: the one asked for, or the first that is there."""
    for name in ENGINES if wanted == "auto" else (wanted,):
        found = shutil.which(name)
        if found is not None:
            return found
    return None


class EngineRun:
    """One try to run a request in an engine."""

    def __init__(self, program: str, request: Request) -> None:
        self._program = program
        self._request = request
        self._runtime = Path(program).name

    async def run(self, seconds: float | None) -> Ending:
        """Run the container, or follow the one that an earlier try left running, and return how it ended."""
        started = time.monotonic()
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        with TemporaryDirectory(prefix="noetl-container-") as directory:
            arguments, environment, lines = await asyncio.to_thread(self._prepared, Path(directory))
            is_done = False
            try:
                ended = await self._engine(*arguments, env=environment, given=lines, deadline=deadline)
                if ended.exit_code == _NOT_RUN and any(word in ended.stderr.text for word in _TAKEN):
                    ended = await self._followed(deadline)
                is_done = ended.exit_code is not None
            finally:
                if not is_done:
                    # The engine's client going away does not end the container.
                    await asyncio.shield(self._engine("rm", "--force", self._request.name))
        if ended.exit_code == _NOT_RUN:
            said = ended.stderr.text.strip().splitlines()
            raise Unavailable(
                f"{self._runtime} cannot run the container: {said[-1] if said else 'it does not say why'}"
            )
        return self._ending(ended, time.monotonic() - started)

    async def _followed(self, deadline: float | None) -> Ended:
        """Wait for a container that runs already and take what it printed."""
        printed, code = await asyncio.gather(
            self._engine("logs", "--follow", self._request.name, deadline=deadline),
            self._engine("wait", self._request.name, deadline=deadline),
        )
        text = code.stdout.text.strip()
        if code.exit_code is not None and not text.lstrip("-").isdigit():
            raise Unavailable(f"the container {self._request.name} of an earlier try ended and is gone")
        return Ended(None if code.exit_code is None else int(text), printed.stdout, printed.stderr)

    def _ending(self, ended: Ended, seconds: float) -> Ending:
        reason, message = None, ""
        if ended.exit_code is None:
            reason, message = "DeadlineExceeded", f"its limit is {self._request.seconds:g} seconds"
        elif ended.exit_code == _KILLED and self._limits().get("memory"):
            reason = "OOMKilled"
        return Ending(
            runtime=self._runtime,
            name=self._request.name,
            output=ended.stdout.text + ended.stderr.text,
            exit_code=ended.exit_code,
            reason=reason,
            message=message,
            succeeded=ended.exit_code == 0,
            seconds=seconds,
        )

    async def _engine(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        given: bytes | None = None,
        deadline: float | None = None,
    ) -> Ended:
        own = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        try:
            return await run_process(
                [self._program, *arguments],
                env={**(env or {}), **own},
                deadline=deadline,
                given=given,
                confined=False,  # the engine's own client: what it starts has a container around it
            )
        except OSError as problem:
            raise Unavailable(f"{self._program} cannot be started: {problem.strerror}") from None

    def _prepared(self, directory: Path) -> tuple[list[str], dict[str, str], bytes]:
        """Return the engine's arguments, what is added to its environment and what it reads."""
        request, options = self._request, self._request.options
        foreign = [name for name in _OF_CLUSTERS if options.get(name)]
        if foreign or request.env_from_cluster:
            raise InputError(f"{', '.join(foreign) or 'valueFrom'} needs a cluster, and {self._runtime} is none")
        several = {name: value for name, value in request.env.items() if "\n" in value}
        lines = "".join(f"{name}={value}\n" for name, value in request.env.items() if name not in several)
        arguments = ["run", "--rm", "--name", request.name, "--env-file", "/dev/stdin"]
        for name in sorted(several):
            arguments += ["--env", name]
        for name, value in sorted(request.labels.items()):
            arguments += ["--label", f"{name}={value}"]
        limits = self._limits()
        if limits.get("memory"):
            arguments += ["--memory", str(memory_bytes(limits["memory"]))]
        if limits.get("cpu"):
            arguments += ["--cpus", f"{cpus(limits['cpu']):g}"]
        if options.get("working_dir"):
            arguments += ["--workdir", str(options["working_dir"])]
        if options.get("image_pull_policy"):
            arguments += ["--pull", _PULLING[str(options["image_pull_policy"])]]
        arguments += self._mounts(directory)
        first, *rest = [*request.command, *request.args] if request.command else ["", *request.args]
        if first:
            arguments += ["--entrypoint", first]
        return [*arguments, request.image, *rest], several, lines.encode()

    def _limits(self) -> Mapping[str, Any]:
        resources = self._request.options.get("resources") or {}
        limits = resources.get("limits") if isinstance(resources, Mapping) else None
        return limits if isinstance(limits, Mapping) else {}

    def _mounts(self, directory: Path) -> list[str]:
        arguments: list[str] = []
        for one in self._request.options.get("volumes") or ():
            place = one.get("mount_path", one.get("mountPath")) if isinstance(one, Mapping) else None
            if not place or not isinstance(one.get("emptyDir", one.get("empty_dir")), Mapping):
                # The worker's own files are not a playbook's to read.
                raise InputError(f"volumes: with {self._runtime} only {{mount_path, emptyDir: {{}}}} is possible")
            arguments += ["--volume", str(place)]
        if self._request.script is not None:
            file = directory / self._request.script.file
            file.write_text(self._request.script.text)
            file.chmod(0o444)
            directory.chmod(0o755)
            arguments += ["--volume", f"{directory}:{SCRIPT_PLACE}:ro"]
        return arguments


_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([A-Za-z]*)")
_UNITS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def memory_bytes(quantity: Any) -> int:
    """Return bytes for text such as `128Mi`."""
    return int(_read(quantity, "memory"))


def cpus(quantity: Any) -> float:
    """Return processors for text such as `500m`."""
    return float(_read(quantity, "cpu"))


def _read(quantity: Any, what: str) -> Decimal:
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"resources: {quantity!r} is no amount of {what}; write it as 500m or 128Mi")
    return Decimal(found[1]) * _UNITS[found[2]]
