"""`noetl` and `noetl db` as a user meets them: separate processes, their output and their exit codes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from noetl.cli.main import COMMANDS
from noetl.runtime.postgres import migrations
from noetl.runtime.postgres.embedded import EmbeddedServer

Run = Callable[..., "subprocess.CompletedProcess[str]"]
EXTERNAL = {"NOETL_DATABASE_URL": "postgresql://somebody:secret@127.0.0.1:1/noetl"}


@pytest.fixture
def project() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="noetl-test-"))
    directory.chmod(0o755)
    yield directory
    EmbeddedServer(directory / ".noetl").destroy()
    shutil.rmtree(directory)


@pytest.fixture
def noetl(project: Path) -> Run:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}

    def run(*arguments: str, cwd: Path = project, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "noetl", *arguments]
        return subprocess.run(
            command,
            cwd=cwd,
            env=clean | environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom noetl.cli.main import run\nassert run(['--help']) == 0\n"
        "heavy = {'asyncpg', 'psycopg', 'pydantic', 'rich', 'alembic', 'sqlalchemy', 'pyarrow', 'asyncio', 'noetl.runtime'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


def test_the_embedded_server_imports_only_the_standard_library() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nimport noetl.runtime.postgres.embedded\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names - {'noetl'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_misspelt_command_is_answered_with_the_nearest(noetl: Run) -> None:
    done = noetl("evnts")
    assert done.returncode == 2
    assert "Did you mean 'events'?" in done.stderr


def test_version_is_printed(noetl: Run) -> None:
    assert noetl("--version").stdout.startswith("noetl, version ")


def test_a_closed_pipe_leaves_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [sys.executable, "-m", "noetl", "--help"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert process.communicate()[1] == ""
    assert process.returncode == 1


@pytest.mark.parametrize("command", ["start", "stop", "status", "url", "migrate", "reset"])
def test_every_db_command_shows_examples(command: str, noetl: Run) -> None:
    assert f"noetl db {command}" in noetl("db", command, "--help").stdout


@pytest.mark.parametrize("command", [["start"], ["stop"], ["reset", "--yes"]])
def test_an_external_database_is_never_started_stopped_or_reset(command: list[str], noetl: Run, project: Path) -> None:
    done = noetl("db", *command, **EXTERNAL)
    assert done.returncode == 2
    assert done.stderr.startswith("error: an external database is configured")
    assert not (project / ".noetl").exists()


def test_an_external_database_that_does_not_answer_is_unreachable(noetl: Run) -> None:
    done = noetl("db", "status", **EXTERNAL)
    assert done.returncode == 3
    assert done.stderr.startswith("error: the database does not answer")
    assert "secret" not in done.stderr


def test_the_url_of_a_database_never_started_is_an_error_with_a_hint(noetl: Run) -> None:
    done = noetl("db", "url")
    assert (done.returncode, done.stderr) == (3, "error: the database was never started here\nhint: noetl db start\n")


@pytest.mark.service
def test_a_database_is_started_migrated_shown_stopped_and_reset(noetl: Run, project: Path) -> None:
    assert noetl("db", "start").returncode == 0
    behind = noetl("db", "migrate", "--sql-status")
    assert (behind.returncode, behind.stdout) == (1, f"schema not there, newest {migrations.head()}\n")
    assert noetl("db", "migrate").returncode == 0
    facts = json.loads(noetl("db", "status", "--json").stdout)
    assert (facts["running"], facts["pinned"], facts["users"]) == (True, True, [])
    assert facts["schema_revision"] == facts["schema_head"] == migrations.head()
    table = noetl("db", "status").stdout
    assert f"pid             {facts['pid']}" in table
    url = noetl("db", "url", "--tcp", "--role", "owner").stdout.strip()
    outside = json.loads(noetl("db", "status", "--json", NOETL_DATABASE_URL=url).stdout)
    assert (outside["kind"], outside["version"]) == ("external", facts["version"])
    assert outside["schema_revision"] == migrations.head()
    assert noetl("db", "stop").stdout == "Stopped.\n"
    assert "stopped" in noetl("db", "status").stdout
    refused = noetl("db", "reset")  # nobody is there to confirm it
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "aborted: nothing was done")
    assert (project / ".noetl" / "postgres").exists()
    assert noetl("db", "reset", "--yes").returncode == 0
    assert not (project / ".noetl" / "postgres").exists()


@pytest.mark.service
def test_a_directory_below_a_project_uses_the_same_database_and_a_new_home_is_told(noetl: Run, project: Path) -> None:
    """INV-178."""
    began = noetl("db", "start")
    assert began.stderr == (
        f"NoETL keeps its data in {project / '.noetl'}, which is new. `noetl home` tells why it is this directory.\n"
    )
    below = project / "jobs" / "daily"
    below.mkdir(parents=True)
    status = noetl("db", "status", "--json", cwd=below)
    assert json.loads(status.stdout)["home"] == str(project / ".noetl")
    assert json.loads(status.stdout)["running"]
    assert noetl("home", cwd=below).stdout.startswith(f"home       {project / '.noetl'}\n")
    assert not list(below.iterdir())
    assert noetl("db", "start", cwd=below).stderr == ""


@pytest.mark.service
def test_a_database_of_an_unknown_revision_is_refused_before_anything_is_asked(noetl: Run) -> None:
    assert noetl("db", "start").returncode == 0
    assert noetl("db", "migrate").returncode == 0
    with psycopg.connect(noetl("db", "url", "--tcp", "--role", "owner").stdout.strip()) as connection:
        connection.execute("UPDATE public.schema_revision SET version_num = '0022'")
    done = noetl("db", "migrate")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the database schema is at revision 0022, newer than this program's")
    assert "Go on?" not in done.stdout + done.stderr


@pytest.mark.service
def test_going_back_asks_before_it_drops_tables(noetl: Run) -> None:
    noetl("db", "migrate")
    assert noetl("db", "migrate", "--to", "base").returncode == 1
    assert noetl("db", "migrate", "--sql-status").returncode == 0
    assert noetl("db", "migrate", "--to", "base", "--yes").returncode == 0
    assert noetl("db", "migrate", "--sql-status").returncode == 1


@pytest.mark.service
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server under another account")
def test_status_tells_why_data_stand_elsewhere(noetl: Run, project: Path) -> None:
    project.chmod(0o700)
    elsewhere = Path(tempfile.mkdtemp(prefix="noetl-test-"))
    elsewhere.chmod(0o755)
    try:
        noetl("db", "start", NOETL_STATE_DIR=str(elsewhere))
        facts = json.loads(noetl("db", "status", "--json").stdout)
        assert facts["data_dir"].startswith(str(elsewhere))
        assert str(project) in facts["moved_because"]
        assert "stands there because" in noetl("db", "status").stdout
        assert noetl("db", "reset", "--yes").returncode == 0
    finally:
        shutil.rmtree(elsewhere)


@pytest.mark.service
@pytest.mark.fault
def test_ctrl_c_while_waiting_for_another_start_ends_quietly(project: Path) -> None:
    from noetl.runtime.file_lock import exclusive

    (project / ".noetl").mkdir()
    (project / ".noetl").chmod(0o755)
    with exclusive(project / ".noetl" / "postgres.lock"):
        process = subprocess.Popen(
            [sys.executable, "-m", "noetl", "db", "start"], cwd=project, stderr=subprocess.PIPE, text=True
        )
        while "FLOCK" not in waiting_locks(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1].strip() == "interrupted"
    assert process.returncode == 130


def waiting_locks(pid: int) -> str:
    lines = Path("/proc/locks").read_text().splitlines()
    return "\n".join(line for line in lines if "->" in line and f" {pid} " in line)
