"""Runs commands in this process against a database of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.cli.main import run

Noetl = Callable[..., tuple[int, str, str]]
"""Runs a command and gives its exit code, output and errors."""

HELLO = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello, path: demo/hello}
workload: {name: world, times: 2}
workflow:
  - step: greet
    tool: {kind: python, input: {name: "{{ workload.name }}"}, code: 'result = {"text": "hello " + name}'}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(workload.times) }}", iterator: item}
    tool: {kind: noop}
"""


@pytest.fixture
def noetl(owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Noetl:
    """The `noetl` command in a folder that holds hello.yaml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "hello.yaml").write_text(HELLO)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(arguments)
        return code, *capsys.readouterr()

    return command
