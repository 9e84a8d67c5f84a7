"""Every command of the README runs, in its order, in one shell on a home of its own, and prints what the README shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.acceptance.shown_outputs import differences, shown_outputs
from tests.acceptance.test_docs import PAGE_SECONDS, ROOT, blocks_of, is_ignored, run_commands, temporary_home

README = ROOT / "README.md"
MAKEFILE = (ROOT / "Makefile").read_text()
COMMANDS = blocks_of(README, "sh")
MOST_LINES = 150

pytestmark = pytest.mark.timeout(PAGE_SECONDS + 60)


def recipe(target: str) -> str:
    """Return what the Makefile does for a target, with this interpreter's programs."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"the Makefile has no {target}"
    lines = [line.strip().removeprefix("@") for line in found[1].splitlines()]
    return "\n".join(lines).replace("$(BIN)", str(Path(sys.executable).parent))


def stand_ins(installed: Path) -> str:
    """Return shell functions for the commands that install: `make demo` and `pip install .`.

    The demo runs in the environment of the tests. The package is built and installed from this checkout, but into a
    directory of its own and without its dependencies, which the environment of the tests has.
    """
    options = f'--quiet --no-deps --no-build-isolation --no-index --target "{installed}"'
    return f"""
make() {{ test "$*" = demo
{recipe("demo")}
}}
pip() {{ test "$*" = "install ."
{sys.executable} -m pip install {options} .
test -e "{installed}/noetl/__main__.py"
}}"""


def test_the_readme_begins_with_the_demo() -> None:
    text = README.read_text()
    assert COMMANDS[0].text.splitlines()[0] == "make demo"
    assert "`make test` runs the tests" in text
    assert not any(is_ignored(block) for block in COMMANDS), "every command of the README is run"
    for target in re.findall(r"make (\w+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"the Makefile has no {target}"


def test_the_readme_is_short_and_shows_outputs() -> None:
    assert len(README.read_text().splitlines()) < MOST_LINES
    shown = {block.text.splitlines()[-1] for block, _ in shown_outputs(README)}
    assert any(line.startswith("noetl run ") for line in shown)
    assert any("noetl why last" in line for line in shown)


def test_the_readme_leads_to_files_that_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


@pytest.mark.service
@pytest.mark.slow
def test_every_command_of_the_readme_runs_and_prints_what_is_shown(spark_cache: Path, quick_programs: Path) -> None:
    with temporary_home() as home:
        prelude = stand_ins(home.parent / "installed")
        printed = run_commands(COMMANDS, home, spark_cache, quick_programs, prelude=prelude)
    assert re.search(r"first answer (\w+), as of then \1: equal", printed)
    assert '["HELLO, BARBARA"]' in printed
    assert printed.count("Nothing differs.") == 3
    assert differences(README, printed) == []
