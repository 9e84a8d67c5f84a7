"""Runs commands as a user would, against a database of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.acceptance.docs_noetl import quick_noetl

from noetl.cli.main import run

Noetl = Callable[..., tuple[int, str, str]]
"""Runs a command and gives its exit code, output and errors."""


@pytest.fixture(scope="session")
def quick_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a `noetl` that starts at once, for shells that run many."""
    with quick_noetl(tmp_path_factory.mktemp("programs")) as directory:
        yield directory


@pytest.fixture
def noetl(owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Noetl:
    """The `noetl` command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    # One login for all roles, as on a server where NoETL has a single account.
    monkeypatch.setenv("NOETL_DATABASE_URL", owner_url)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code: object
        try:
            code = run(arguments)
        except SystemExit as leaving:
            code = leaving.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return command
