"""Packages for the python tool: installed once per list, kept, and told about when they cannot be had."""

from __future__ import annotations

import asyncio
import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

from noetl.engine.tools.port import Call
from noetl.engine.tools.python.tool import PythonTool

CallOf = Callable[..., Call]


def wheel_in(directory: Path) -> Path:
    """Write a wheel with one module, as an index would serve it."""
    files = {
        "ledgerbook.py": "def total(numbers): return sum(numbers)\n",
        "ledgerbook-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ledgerbook\nVersion: 1.0\n",
        "ledgerbook-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, text in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{name},sha256={digest},{len(text)}\n"
    files["ledgerbook-1.0.dist-info/RECORD"] = record + "ledgerbook-1.0.dist-info/RECORD,,\n"
    place = directory / "ledgerbook-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return place


async def test_packages_are_installed_once_into_an_environment_of_their_own(call_of: CallOf, tmp_path: Path) -> None:
    tool = PythonTool(processes=2, cache=tmp_path / "cache")
    code = "import sys, ledgerbook\nresult = [ledgerbook.total([1, 2]), sys.prefix]"
    call = call_of("python", code=code, deps={"packages": [str(wheel_in(tmp_path))]}, timeout=100)
    first, second = await asyncio.gather(tool.run(call), tool.run(call))
    assert first.data == second.data, (first, second)
    total, prefix = first.data
    assert total == 3
    assert Path(prefix).parent == tmp_path / "cache"
    given = call_of("python", code=code, deps={"venv_path": prefix})
    assert (await tool.run(given)).data == [3, prefix]
    without = await tool.run(call_of("python", code="import ledgerbook"))
    assert without.error is not None
    assert without.error.exception_type == "ModuleNotFoundError"


async def test_a_package_that_cannot_be_had_is_a_problem_worth_another_try(call_of: CallOf, tmp_path: Path) -> None:
    tool = PythonTool(processes=2, cache=tmp_path / "cache")
    broken = tmp_path / "broken-1.0-py3-none-any.whl"
    broken.write_text("this is no wheel")
    outcome = await tool.run(call_of("python", code="result = 1", deps={"packages": [str(broken)]}, timeout=100))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", True)
    assert "broken-1.0" in outcome.error.message
