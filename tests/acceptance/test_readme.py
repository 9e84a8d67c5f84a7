"""Every command of the README runs, in its order, in one shell on a home of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.acceptance.test_docs import PAGE_SECONDS, ROOT, blocks_of, is_ignored, run_commands, temporary_home

README = ROOT / "README.md"
MAKEFILE = (ROOT / "Makefile").read_text()
COMMANDS = blocks_of(README, "sh")

pytestmark = pytest.mark.timeout(PAGE_SECONDS + 60)


def recipe(target: str) -> str:
    """Return what the Makefile does for a target, with this interpreter's programs."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"the Makefile has no {target}"
    lines = [line.strip().removeprefix("@") for line in found[1].splitlines()]
    return "\n".join(lines).replace("$(BIN)", str(Path(sys.executable).parent))


def test_the_readme_begins_with_two_commands() -> None:
    text = README.read_text()
    assert COMMANDS[0].text.splitlines()[0] == "make demo"
    assert "`make test` runs the tests" in text
    assert not any(is_ignored(block) for block in COMMANDS), "every command of the README is run"
    for target in re.findall(r"make (\w+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"the Makefile has no {target}"


def test_the_readme_leads_to_files_that_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


@pytest.mark.service
@pytest.mark.slow
def test_every_command_of_the_readme_runs_in_order(spark_cache: Path, quick_programs: Path) -> None:
    demo = f'make() {{ test "$*" = demo\n{recipe("demo")}\n}}'
    with temporary_home() as home:
        printed = run_commands(COMMANDS, home, spark_cache, quick_programs, prelude=demo)
    assert re.search(r"first answer (\w+), as of then \1: equal", printed)
    assert re.search(r"^north +2 +62\.00", printed, re.MULTILINE)
    assert '["HELLO, BARBARA!"]' in printed
    assert printed.count("Nothing differs.") == 3
    assert re.search(
        r"^The proof holds: \d+ events of execution \d+ stand unchanged under the head of", printed, re.MULTILINE
    )
    assert re.search(
        r"^chain: \d+ events held against their leaves, \d+ links, \d+ signed heads$", printed, re.MULTILINE
    )
