"""A command belongs to the project of its directory or of one above it, wherever in the project it is run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from noetl.cli.home import home
from noetl.runtime.config import load
from noetl.runtime.config.project import Project, find_project
from noetl.services.credentials.local_secrets import make_local_token


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a directory two levels below one that may become a project."""
    inner = tmp_path / "shop" / "jobs" / "daily"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for name in [name for name in os.environ if name.startswith("NOETL_")]:
        monkeypatch.delenv(name)
    return tmp_path / "shop"


@pytest.mark.parametrize("marker", [".noetl", "noetl.yaml"])
def test_the_nearest_home_or_settings_file_makes_the_project(below: Path, marker: str) -> None:
    """INV-178."""
    assert find_project() == Project(below / "jobs" / "daily", None, None)
    for directory in (below, below / "jobs"):
        if marker == ".noetl":
            (directory / marker).mkdir()
        else:
            (directory / marker).touch()
        assert find_project().directory == directory
        assert load().settings.runtime.home == directory / ".noetl"
    assert find_project(below.parent).directory == below.parent


def test_a_file_of_the_name_of_a_home_is_none(below: Path) -> None:
    (below / ".noetl").touch()
    (below / "noetl.yaml").mkdir()
    assert find_project().directory == Path.cwd()


def test_a_settings_file_above_says_the_same_wherever_a_command_is_run(
    below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-178."""
    (below / "noetl.yaml").write_text(
        "runtime: {home: data, cluster_id: blue}\n"
        "payload_store: {key_directory: /etc/keys, cache: {tier_2_disk_path: ~/cache}}\n"
    )
    found = []
    for directory in (below, below / "jobs"):
        monkeypatch.chdir(directory)
        loaded = load()
        settings = loaded.settings
        assert loaded.file is not None
        found.append((loaded.file.resolve(), settings.runtime.home.resolve(), settings.runtime.cluster_id))
        assert (settings.key_directory, settings.payload_store.cache.tier_2_disk_path) == (
            Path("/etc/keys"), Path("~/cache").expanduser(),
        )  # fmt: skip
    assert set(found) == {(below / "noetl.yaml", below / "data", "blue")}


def test_what_is_set_wins_over_what_lies_above(below: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (below / ".noetl").mkdir()
    monkeypatch.setenv("NOETL_HOME", str(tmp_path / "elsewhere"))
    assert load().settings.runtime.home == tmp_path / "elsewhere"


def test_what_another_user_put_above_is_passed_over(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-178."""
    (below / ".noetl").mkdir()
    (below / "jobs" / "noetl.yaml").write_text("runtime: {cluster_id: theirs}")
    real = os.stat
    foreign = below / "jobs" / "noetl.yaml"

    def stat(path: os.PathLike[str], **options: bool) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((*found[:4], 4242, *found[5:])) if Path(path) == foreign else found

    monkeypatch.setattr(os, "stat", stat)
    assert find_project() == Project(below, below / ".noetl", None, (foreign,))
    monkeypatch.setenv("SUDO_UID", "4242")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_project().file == foreign


def told(*arguments: str) -> str:
    """Return what `noetl home` says."""
    result = CliRunner().invoke(home, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_the_home_is_shown_with_its_reason_and_looking_makes_nothing(
    below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    assert told().splitlines() == [
        f"home       {here / '.noetl'}, not made yet",
        "because    neither the working directory nor one above it has .noetl or noetl.yaml",
        "settings   defaults and environment",
        "database   not made yet",
    ]
    assert not list(here.iterdir())
    (below / ".noetl" / "postgres").mkdir(parents=True)
    (below / "noetl.yaml").touch()
    assert json.loads(told("--json")) == {
        "home": str(below / ".noetl"),
        "because": f".noetl is in {below}",
        "exists": True,
        "settings_file": str(below / "noetl.yaml"),
        "database": "embedded",
        "token_file": None,
        "passed_over": [],
    }
    made = make_local_token(below / ".noetl" / "keys")
    assert made is not None
    assert told().splitlines()[-1] == f"token      {made.path}, for a server that has no other"
    monkeypatch.setenv("NOETL_HOME", "other")
    monkeypatch.setenv("NOETL_DATABASE_URL", "postgresql://u:hunter2@db/noetl")
    said = told()
    assert "because    set by NOETL_HOME\n" in said
    assert "database   postgresql://u:***@db/noetl\n" in said
