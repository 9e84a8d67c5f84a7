"""What the documents say is so: their playbooks are checked or run, their settings are read, their commands run in order.

A fence says what is done with it: `yaml` is a playbook that has no problems, `yaml run` one that is run, followed by what
it came to as `json came to`; `yaml old` has old spellings and no errors, `yaml wrong` has errors; `yaml dag` is a DAG
without problems, `yaml dag wrong` one with errors; `yaml view` is a view without problems; `yaml settings` is a
settings file, `yaml alerts` one of alerts. `sh` is run; `sh ignore: REASON` is not. `python` is not run: it shows what other tools look like.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.plan.state import State
from noetl.language.alert.document import parse_alerts
from noetl.language.dag.parse import problems_of as dag_problems_of
from noetl.language.playbook.checks.all_checks import problems_of
from noetl.language.view.document import problems_of as view_problems_of
from noetl.runtime.config import load_settings
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.testing.engines.playbooks import Playbooks
from noetl.testing.servers.postgres import quick_place

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "coming-from").glob("*.md")])
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTES = {
    "yaml": {"", "run", "old", "wrong", "dag", "dag wrong", "view", "settings", "alerts"},
    "json": {"", "came to"},
    "sh": {""},
    "text": {""},
    "sql": {""},
    "python": {""},
}
PLAYBOOK_NOTES = ("", "run", "old", "wrong")
DAG_NOTES = ("dag", "dag wrong")
SERVER_PORT = "8082"
PAGE_SECONDS = 600
"""How long the commands of a page may take; where Spark is among them, most of it is its start."""
EVENTS_ALONE = {"event-lake.md", "replay-on-spark.md"}
"""Pages that bring the lake up to date and ask for no facts; the README's commands make those."""
LONG = {"event-lake.md", "lineage.md", "replay-on-spark.md", "sources.md", "tutorial.md"}
"""Pages whose commands last longer than 20 seconds, most of it for Spark."""
INSTALLED = {"sources.md"}
"""Pages with the `noetl` that is installed: the quick one resumes a source before the turn that was to stop has ended."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    note: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands."""
        return f"{self.page.name}:{self.line}"

    @property
    def playbook(self) -> str:
        """The text of a whole playbook: small ones leave out the head."""
        if "apiVersion:" in self.text:
            return self.text
        head = f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: example, path: docs/line-{self.line}}}\n"
        return head + self.text


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page, all or those of some languages."""
    text = page.read_text()
    found = []
    for fence in FENCE.finditer(text):
        language, _, note = fence[1].strip().partition(" ")
        found.append(Block(page, text.count("\n", 0, fence.start()) + 1, language, note, fence[2]))
    return [block for block in found if not languages or block.language in languages]


def pages_with(language: str, *notes: str) -> list[Path]:
    """Return the pages that have such a block."""
    return [page for page in PAGES if any(not notes or block.note in notes for block in blocks_of(page, language))]


def is_ignored(block: Block) -> bool:
    """Tell whether a block of commands says why it is not run."""
    return block.note.startswith("ignore: ") and len(block.note) > len("ignore: 1234567")


@contextmanager
def temporary_home() -> Iterator[Path]:
    """Give a home with a running embedded server, which an unprivileged account can enter; at the end it is stopped.

    It would start and stop with every command otherwise, which takes longer than most commands.
    """
    with tempfile.TemporaryDirectory(prefix="noetl-docs-", dir=quick_place(), ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        path.chmod(0o755)
        server = EmbeddedServer(path / ".noetl")
        server.start()
        try:
            yield path / ".noetl"
        finally:
            server.stop()


def run_commands(blocks: list[Block], home: Path, spark_cache: Path, programs: Path, prelude: str = "") -> str:
    """Run the commands of a page in one shell, as a reader in one terminal would, and return what it printed.

    The server's port is a free one, so that pages can be tested beside each other and beside a server that runs here.
    Spark starts as it does from the second time on. What is in `programs` comes before what is installed.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    # A page names the home directory that a reader has; here it is the test's own.
    texts = [block.text.replace(SERVER_PORT, port).replace(".noetl/", f"{home}/") for block in blocks]
    told = [f": {block.place}\n{text}" for block, text in zip(blocks, texts, strict=True)]
    # Servers and workers that a page starts in the background end with the shell.
    script = "\n".join(
        ["set -euo pipefail", "trap 'jobs -p | xargs -r kill 2>/dev/null; wait' EXIT", prelude, "set -x", *told]
    )
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
        "NOETL_HOME": str(home),
        "NOETL_SERVER__PORT": port,
        "NOETL_SPARK__CACHE_DIRECTORY": str(spark_cache),
        "NOETL_SPARK__CONF": '["spark.sql.shuffle.partitions=2"]',
        "NOETL_EVENT_LAKE__FACTS": str(not {block.page.name for block in blocks} & EVENTS_ALONE).lower(),
        "COLUMNS": "160",
    }
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=PAGE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    assert shell.returncode == 0, f"a command ended with {shell.returncode}:\n{printed[-6000:]}"
    assert "Traceback" not in printed, printed[-6000:]
    return printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    before: Block | None = None
    for block in blocks_of(page):
        assert block.language in NOTES, f"{block.place}: say what the block is"
        assert block.note in NOTES[block.language] or (block.language == "sh" and is_ignored(block)), (
            f"{block.place}: {block.note!r} is no note this test knows"
        )
        if block.note == "came to":
            assert before is not None, block.place
            assert before.note == "run", f"{block.place}: nothing before it was run"
        before = block


@pytest.mark.parametrize("page", pages_with("yaml", *PLAYBOOK_NOTES), ids=lambda page: page.name)
def test_the_playbooks_of_the_documents_are_as_good_as_they_say(page: Path) -> None:
    for block in blocks_of(page, "yaml"):
        if block.note not in PLAYBOOK_NOTES:
            continue
        problems = problems_of(block.playbook, file=block.place)
        errors = [str(problem) for problem in problems if problem.severity == "error"]
        assert bool(errors) == (block.note == "wrong"), f"{block.place}: {errors}"
        if block.note in ("", "run"):
            assert not problems, [str(problem) for problem in problems]
        if block.note == "old":
            assert {problem.code for problem in problems} == {"legacy_spelling"}, problems


@pytest.mark.parametrize("page", pages_with("yaml", *DAG_NOTES), ids=lambda page: page.name)
def test_the_dags_of_the_documents_are_as_good_as_they_say(page: Path) -> None:
    for block in blocks_of(page, "yaml"):
        if block.note in DAG_NOTES:
            problems = dag_problems_of(block.text, file=block.place)
            told = [str(problem) for problem in problems]
            has_errors = any(problem.severity == "error" for problem in problems)
            assert has_errors if block.note == "dag wrong" else not problems, f"{block.place}: {told}"


@pytest.mark.parametrize("page", pages_with("yaml", "view"), ids=lambda page: page.name)
def test_the_views_of_the_documents_have_no_problems(page: Path) -> None:
    for block in blocks_of(page, "yaml"):
        if block.note == "view":
            assert view_problems_of(block.text, file=block.place) == []


@pytest.mark.service
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", pages_with("yaml", "run"), ids=lambda page: page.name)
async def test_the_playbooks_of_the_documents_come_to_what_is_said(page: Path, playbooks: Playbooks) -> None:
    said = blocks_of(page, "yaml", "json")
    ran = 0
    for block, after in zip(said, [*said[1:], None], strict=True):
        if block.note != "run":
            continue
        state = await playbooks.run(block.playbook)
        if after is None or after.note != "came to":
            assert state.status == "COMPLETED", f"{block.place}: {state.error}"
        else:
            await _compare(playbooks, state, json.loads(after.text), after.place)
        ran += 1
    assert ran, page.name


async def _compare(playbooks: Playbooks, state: State, said: dict[str, Any], place: str) -> None:
    entered = [event["node_name"] for event in await playbooks.events(state.execution_id, "step.entered")]
    result = None if state.result_step is None else await playbooks.data(state, state.result_step)
    facts = {"status": state.status, "result": result, "ctx": state.ctx, "swallowed": state.swallowed, "steps": entered}
    error = said.pop("error", None)
    assert error is None or error in (state.error or ""), f"{place}: {state.error}"
    assert {name: facts[name] for name in said} == said, f"{place}: {state.error}"
    assert "status" in said, f"{place}: say how it ended"


@pytest.mark.parametrize("page", pages_with("yaml", "settings"), ids=lambda page: page.name)
def test_the_settings_of_the_documents_are_good(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://noetl_runtime@localhost/noetl")
    for block in blocks_of(page, "yaml"):
        if block.note == "settings":
            file = tmp_path / "noetl.yaml"
            file.write_text(block.text)
            load_settings(file)


@pytest.mark.parametrize("page", pages_with("yaml", "alerts"), ids=lambda page: page.name)
def test_the_files_of_alerts_of_the_documents_are_good(page: Path) -> None:
    for block in blocks_of(page, "yaml"):
        if block.note == "alerts":
            assert parse_alerts(block.text, file=block.place).rules


@pytest.mark.service
@pytest.mark.timeout(PAGE_SECONDS + 60)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in pages_with("sh")
    ],
)
def test_the_commands_of_the_documents_run_in_order(page: Path, spark_cache: Path, quick_programs: Path) -> None:
    commands = [block for block in blocks_of(page, "sh") if not is_ignored(block)]
    programs = Path(sys.executable).parent if page.name in INSTALLED else quick_programs
    with temporary_home() as home:
        run_commands(commands, home, spark_cache, programs)
