"""The tool registry: every kind is known, nothing is loaded before it is used, and nobody takes over a kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.engine.tools.port import Call
from noetl.engine.tools.registry import LazyTool, known_kinds, load_tools
from noetl.errors import ConfigError

CallOf = Callable[..., Call]

MODULE = """
class WeatherTool:
    kind = "weather"
    def __init__(self, unit="C"):
        self.unit = unit
    async def run(self, call):
        from noetl.engine.tools.outcome import Outcome
        return Outcome(data=self.unit)
"""


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, *points: str, name: str = "weather_tools") -> None:
    """Put a package with entry points where Python finds it, as an installer would."""
    (directory / f"{name}.py").write_text(MODULE)
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[noetl.tools]\n" + "\n".join(points) + "\n")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("kind", sorted(known_kinds()))
def test_every_built_in_kind_can_be_loaded(kind: str) -> None:
    tool = load_tools()[kind]
    assert isinstance(tool, LazyTool)
    assert tool.tool().kind == tool.kind == kind


def test_the_registry_loads_no_tool_before_its_first_use() -> None:
    code = """
import sys
from noetl.engine.tools.registry import known_kinds, load_tools
assert set(load_tools()) == known_kinds()
print(sorted({"duckdb", "nats", "aiohttp", "asyncpg", "pyarrow"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


async def test_a_kind_is_loaded_and_run_at_its_first_call(call_of: CallOf) -> None:
    assert (await load_tools()["noop"].run(call_of("noop"))).data is None


async def test_settings_reach_the_tools(call_of: CallOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "weather = weather_tools:WeatherTool")
    tools = load_tools({"weather": {"unit": "F"}})
    assert (await tools["weather"].run(call_of("weather"))).data == "F"
    with pytest.raises(ConfigError, match="nonsense"):
        load_tools({"nonsense": {}})


async def test_a_package_may_bring_a_kind_along(
    call_of: CallOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "weather = weather_tools:WeatherTool")
    assert "weather" in known_kinds()
    assert "weather_tools" not in sys.modules
    assert (await load_tools()["weather"].run(call_of("weather"))).data == "C"


def test_a_package_may_not_take_over_a_built_in_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "http = weather_tools:WeatherTool")
    with pytest.raises(ConfigError, match="'http', which is NoETL's own"):
        load_tools()


def test_two_packages_may_not_bring_the_same_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "weather = weather_tools:WeatherTool")
    install(tmp_path, monkeypatch, "weather = other_tools:WeatherTool", name="other_tools")
    with pytest.raises(ConfigError, match=r"both .* call themselves the tool 'weather'"):
        load_tools()


@pytest.mark.parametrize(
    "point", ["weather = not_there:Tool", "weather = weather_tools:Gone", "rain = weather_tools:WeatherTool"]
)
async def test_a_kind_that_cannot_be_loaded_says_so_at_its_first_call(
    call_of: CallOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    install(tmp_path, monkeypatch, point)
    kind = point.partition(" ")[0]
    with pytest.raises(ConfigError, match=kind):
        await load_tools()[kind].run(call_of(kind))
