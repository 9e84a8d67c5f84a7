"""What is hidden from tasks, from the settings to the task: every place the settings can name, and every name in a home."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import noetl
from noetl.engine.confinement import policy as policies
from noetl.engine.tools.programs.process import run_process
from noetl.runtime.config import load_settings
from noetl.runtime.config.schema import leaves, variable
from noetl.runtime.confinement import confine_tasks, hide_secrets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
spaces = pytest.mark.skipif(policies.namespaces_obstacle() is not None, reason="no namespaces here")

_OPEN = {"spark.cache_directory", "spark.pack", "runtime.home"}
"""Settings of places that tasks may see: programs without data of anybody. The home is looked at by itself."""


def _places() -> dict[str, str]:
    """Return each setting that names a place on this machine, with its variable."""
    found = {
        ".".join(path): variable(path)
        for path, leaf in leaves()
        if leaf.type is Path or (leaf.field.description or "").startswith("Directory")
    }
    return {name: variable for name, variable in found.items() if name not in _OPEN}


def _names_in_a_home() -> set[str]:
    """Return what the code and the descriptions of settings put into a home."""
    code = "\n".join(file.read_text() for file in Path(noetl.__file__).parent.rglob("*.py"))
    told = "\n".join(leaf.field.description or "" for _, leaf in leaves())
    return {
        *re.findall(r'runtime\.home / "([^"]+)"', code),
        *re.findall(r"`([\w.-]+)` (?:in|under) `runtime\.home`", told),
        *re.findall(r'(?:base|home) / "(postgres\.[\w.]+|run)"', code),
        "nats",
        "postgres",
    }


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a process hides stays hidden, so it is that of this test alone.
    monkeypatch.setattr(policies, "_policy", None)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "data").write_text("data")
    monkeypatch.chdir(tmp_path / "project")


def test_the_lists_here_are_not_empty() -> None:
    """They are derived by patterns, which a change of words could make match nothing."""
    assert {"event_store.heads.path", "lake.location", "views.checkpoint", "payload_store.key_directory"} <= set(
        _places()
    )
    assert {"heads", "views", "query", "node-broker.sock", "lake", "postgres.pgpass"} <= _names_in_a_home()


@spaces
@pytest.mark.parametrize("made_by_us", [True, False], ids=["our home", "a home that was there before"])
async def test_a_task_reads_nothing_that_settings_or_home_hold(made_by_us: bool, tmp_path: Path) -> None:
    """INV-200: the list comes from the settings, and their way to the task is the one that a worker takes."""
    home = Path(".noetl")
    environ, secrets = {}, []
    for setting, name in _places().items():
        place = tmp_path / setting
        place.mkdir()
        (place / "secret").write_text(setting)
        file = re.search(r"file|broker|openlineage", setting) is not None
        environ[name] = str(place / "secret" if file else place)
        secrets.append(place / "secret")
    for name in {"proofs", *_names_in_a_home()}:
        held = home / name if "." in name else home / name / "secret"
        held.parent.mkdir(parents=True, exist_ok=True)
        held.write_text("{}")
        secrets.append(held)
    if made_by_us:
        (home / ".gitignore").write_text("*\n")

    settings = load_settings(environ=environ)
    told: list[str] = []
    assert confine_tasks(settings, told.append, shared=False).namespaces
    hide_secrets(settings)
    assert told == []

    shown = await run_process(["/bin/cat", *map(str, secrets), "data"], cwd=str(tmp_path / "project"))
    assert shown.stdout.text == "data"


@spaces
async def test_a_place_that_holds_the_project_is_not_hidden(tmp_path: Path) -> None:
    """Tasks would lose the files they work on."""
    hide_secrets(load_settings(environ={"NOETL_LAKE__LOCATION": str(tmp_path)}))
    shown = await run_process(["/bin/cat", "data"], cwd=str(tmp_path / "project"))
    assert shown.stdout.text == "data"


@pytest.mark.parametrize("asked", ["none", "namespace"])
def test_isolation_is_the_one_of_the_settings_and_weakness_is_told(asked: str) -> None:
    """INV-200."""
    if asked == "namespace" and policies.namespaces_obstacle() is not None:
        pytest.skip("no namespaces here")
    told: list[str] = []
    settings = load_settings(environ={"NOETL_WORKER__ISOLATION": asked, "NOETL_WORKER__TASK_MEMORY_MB": "64"})
    policy = confine_tasks(settings, told.append, shared=False)
    assert (policy.namespaces, policy.memory_bytes) == (asked == "namespace", 64 << 20)
    assert ["worker.isolation is none" in sentence for sentence in told] == ([True] if asked == "none" else [])
