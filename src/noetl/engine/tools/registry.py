"""The tools a worker has: NoETL's own, loaded when first used, and those that installed packages bring along."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call, Tool
from noetl.errors import ConfigError

GROUP = "noetl.tools"
"""The entry point group under which packages name their tools: the kind, and the class to make without arguments."""

_TOOLS = "noetl.engine.tools"
_BUILT_IN = {
    "agent": "agent.tool:AgentTool",
    "artifact": "artifact:ArtifactTool",
    "container": "container.tool:ContainerTool",
    "duckdb": "duckdb.tool:DuckdbTool",
    "ducklake": "duckdb.ducklake:DucklakeTool",
    "gcs": "gcs:GcsTool",
    "http": "http.tool:HttpTool",
    "mcp": "mcp.tool:McpTool",
    "nats": "nats.tool:NatsTool",
    "noop": "noop:NoopTool",
    "postgres": "postgres.tool:PostgresTool",
    "python": "python.tool:PythonTool",
    "result_fetch": "artifact:ResultFetchTool",
    "script": "programs.script:ScriptTool",
    "secrets": "secrets:SecretsTool",
    "shell": "programs.shell:ShellTool",
    "snowflake": "snowflake.tool:SnowflakeTool",
    "spark": "spark:SparkTool",
    "subscription": "subscription.tool:SubscriptionTool",
    "transfer": "transfer.tool:TransferTool",
}


class LazyTool:
    """Stands for a tool whose module is imported at its first call."""

    def __init__(self, kind: str, point: EntryPoint, settings: Mapping[str, Any]) -> None:
        self.kind = kind
        self._point = point
        self._settings = settings
        self._tool: Tool | None = None
        self.keeps_time = False

    def tool(self) -> Tool:
        """Return the tool itself, loaded."""
        if self._tool is None:
            try:
                made: Tool = self._point.load()(**self._settings)
            except (ImportError, AttributeError, TypeError) as problem:
                raise ConfigError(
                    f"the tool {self.kind!r} ({self._point.value}) cannot be loaded: {problem}"
                ) from problem
            if getattr(made, "kind", None) != self.kind:
                raise ConfigError(f"{self._point.value} is registered as the tool {self.kind!r} and says it is another")
            self._tool = made
            # From now on callers get the tool's own coroutine, without one of ours around it.
            self.run = made.run  # type: ignore[method-assign]
            self.keeps_time = bool(getattr(made, "keeps_time", False))
        return self._tool

    async def run(self, call: Call) -> Outcome:
        """Do the work and say how it ended."""
        return await (await asyncio.to_thread(self.tool)).run(call)


def known_kinds() -> frozenset[str]:
    """Return the kinds this installation has a tool for; nothing is loaded."""
    return frozenset(_BUILT_IN) | frozenset(_brought_along())


def load_tools(settings: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Tool]:
    """Return all tools by kind, none of them loaded yet; `settings` are arguments of tools, by kind."""
    given = dict(settings or {})
    for kind in ("agent", "script"):  # what is Python in these runs in the same processes
        given.setdefault(kind, given.get("python", {}))
    points = {kind: EntryPoint(kind, f"{_TOOLS}.{value}", GROUP) for kind, value in _BUILT_IN.items()}
    points.update(_brought_along())
    unknown = sorted(set(given) - set(points))
    if unknown:
        raise ConfigError(f"settings for tools that are not there: {', '.join(unknown)}")
    return {kind: cast("Tool", LazyTool(kind, point, given.get(kind, {}))) for kind, point in points.items()}


def _brought_along() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in _BUILT_IN:
            raise ConfigError(f"{point.value} calls itself the tool {point.name!r}, which is NoETL's own; rename it")
        other = found.get(point.name)
        if other is not None and other.value != point.value:
            raise ConfigError(f"both {other.value} and {point.value} call themselves the tool {point.name!r}")
        found[point.name] = point
    return found
