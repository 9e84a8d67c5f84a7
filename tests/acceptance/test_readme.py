"""Every command of the README runs, in its order, on a home of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.removeprefix("$ ")
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("$ ")
]
MADE_ELSEWHERE = {
    "make check": "the other half of CI",
    "make test": "this very run",
    "make bench": "takes minutes and is no test; its form is tested by test_bench",
}

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home for the embedded server that an unprivileged account can enter."""
    with tempfile.TemporaryDirectory(prefix="noetl-readme-", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path / ".noetl"
        run("noetl db stop", path / ".noetl")


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the README with this interpreter's programs."""
    environment = {**os.environ, "NOETL_HOME": str(home), "COLUMNS": "160"}
    if command == "make demo":
        arguments = [sys.executable, "examples/temporal_kernel.py"]
    else:
        program = re.match(r"(?:\.venv/bin/)?noetl (.*)", command)
        assert program is not None, f"the README has a command this test does not know: {command}"
        arguments = [sys.executable, "-m", "noetl", *program[1].split()]
    return subprocess.run(
        arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_readme_says_what_it_lists() -> None:
    assert COMMANDS[0] == "make demo"
    assert len(COMMANDS) > 12
    assert COMMANDS.count("make test") == 1


def test_every_command_of_the_readme_runs_in_order(home: Path) -> None:
    for command in COMMANDS:
        if command in MADE_ELSEWHERE:
            continue
        done = run(command, home)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert done.stdout.strip(), f"{command} printed nothing"
        assert "Traceback" not in done.stderr


def test_the_makefile_runs_the_demo_the_readme_shows() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo:.*\n\t\$\(BIN\)/python examples/temporal_kernel.py$", makefile, re.MULTILINE)
