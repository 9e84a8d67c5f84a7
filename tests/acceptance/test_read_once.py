"""A playbook is read and checked once: by the command that has its file, or by the process that takes it from the catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from noetl.language.playbook import parse as parsing
from noetl.language.playbook.checks import all_checks as checking
from noetl.runtime.config import load_settings
from noetl.runtime.roles.server import open_server
from noetl.runtime.service import Stopping

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {0}, path: demo/{0}}}\n"
CHILD = HEAD.format("child") + "workflow:\n  - {step: only, tool: {kind: noop}}\n"
PARENT = HEAD.format("parent") + (
    "workflow:\n"
    "  - step: fork\n    tool: {kind: noop}\n    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}\n"
    + "".join(f"  - {{step: {one}, tool: {{kind: playbook, path: demo/child}}}}\n" for one in "abc")
)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Counts how often any text is read and any playbook checked, whoever asks and in whatever thread."""
    counted: Counter[str] = Counter()
    read, check = parsing.read, checking.check_graph

    def reading(*arguments: Any) -> Any:
        counted["read"] += 1
        return read(*arguments)

    def checks(*arguments: Any) -> Any:
        counted["checked"] += 1
        return check(*arguments)

    # The first thing that each of the two does, looked up at every call.
    monkeypatch.setattr(parsing, "read", reading)
    monkeypatch.setattr(checking, "check_graph", checks)
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "parent.yaml").write_text(PARENT)
    return counted


def test_a_run_of_a_file_reads_it_once(noetl: Noetl, times: Counter[str]) -> None:
    assert noetl("run", "child.yaml")[0] == 0
    assert times == {"read": 1, "checked": 1}


def test_a_run_from_the_catalog_reads_what_was_checked_when_it_was_registered(
    noetl: Noetl, times: Counter[str]
) -> None:
    assert noetl("catalog", "register", "child.yaml")[0] == 0
    assert times == {"read": 1, "checked": 1}
    assert noetl("run", "demo/child")[0] == 0
    assert times == {"read": 2, "checked": 1}


def test_a_playbook_that_is_called_three_times_at_once_is_read_once(noetl: Noetl, times: Counter[str]) -> None:
    assert noetl("catalog", "register", "child.yaml")[0] == 0
    times.clear()
    assert noetl("run", "parent.yaml")[0] == 0
    assert times == {"read": 2, "checked": 1}


async def test_a_server_reads_what_it_registers_once_and_runs_it(
    owner_url: str, tmp_path: Path, times: Counter[str]
) -> None:
    environ = {
        "NOETL_DATABASE_URL": owner_url, "NOETL_HOME": str(tmp_path), "NOETL_PAYLOAD_STORE__BACKEND": "memory",
    }  # fmt: skip
    async with (
        open_server(load_settings(environ=environ), Stopping(), lambda _: None, port=0, slots=2) as serving,
        aiohttp.ClientSession(serving.url, raise_for_status=True) as http,
    ):
        await http.post("/api/catalog/register", json={"content": CHILD})
        async with http.post("/api/execute", json={"path": "demo/child"}) as answer:
            execution = (await answer.json())["execution_id"]
        ended = await serving.engine.finished(serving.runtime.scope, int(execution))
        async with http.get(f"/api/executions/{execution}/why") as answer:
            assert (await answer.json())["sentences"]
    assert ended.status == "COMPLETED"
    assert times == {"read": 1, "checked": 1}
