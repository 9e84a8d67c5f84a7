"""Attacks by the code of a task on the machine it runs on: secrets, the database, other processes, memory, and its own end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.confinement import policy as policies
from noetl.engine.confinement import process as confined_processes
from noetl.engine.confinement.policy import TASK_USER, Policy
from noetl.engine.tools.programs.process import run_process
from noetl.engine.tools.python.pool import Answer, PythonPool, Request, Variant
from noetl.runtime.nats.login import USER
from noetl.runtime.nats.server import Login, running_nats
from noetl.runtime.postgres.embedded import EmbeddedServer
from noetl.runtime.processes import processes
from noetl.testing.attacks import local

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and user ids of tasks are Linux's")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start tasks under another user id")
spaces = pytest.mark.skipif(policies.namespaces_obstacle() is not None, reason="no namespaces here")

POLICIES = [
    pytest.param({"namespaces": True}, marks=spaces, id="namespaces"),
    pytest.param({"namespaces": True, "user": TASK_USER}, marks=[as_root, spaces], id="user and namespaces"),
    pytest.param({"user": TASK_USER}, marks=as_root, id="user"),
]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every account may enter, as a project's is."""
    directory = Path(tempfile.mkdtemp(prefix="noetl-attack-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@asynccontextmanager
async def pool() -> AsyncIterator[PythonPool]:
    """Processes for the code of attacks."""
    opened = PythonPool(1, 10)
    try:
        yield opened
    finally:
        await opened.aclose()


async def attacked(code: str, memory_mb: int = 256, **given: Any) -> Answer:
    """Run the code of an attack as a task."""
    # Another user id needs an interpreter that it may read, and ours may be root's alone.
    python = sys.executable if policies.policy().user is None else shutil.which("python3", path=os.defpath)
    if python is None:
        pytest.skip("no interpreter that another user may read")
    async with pool() as opened:
        return await opened.run(Variant("attacker", python, memory_mb), Request(code, code, given, {}), 60)


async def gained(code: str, **given: Any) -> Any:
    """Return what an attack got hold of."""
    answer = await attacked(code, **given)
    assert answer.how == "answered", answer
    assert "result" in answer.body, answer.body
    return answer.body["result"]


@pytest.mark.service
@pytest.mark.parametrize("how", POLICIES)
async def test_a_task_finds_neither_keys_nor_password_nor_a_way_into_the_database(
    how: dict[str, Any], open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-198, INV-200: nor can it take away what hides them; what the project holds stays readable."""
    home = open_directory / ".noetl"
    monkeypatch.setenv("NOETL_SECRET_KEY", "bm90IGZvciB0YXNrcw==")
    (open_directory / "data.txt").write_text("for tasks")
    (open_directory / "data.txt").chmod(0o644)
    with EmbeddedServer(home) as server:
        (home / "keys").mkdir(mode=0o700)
        (home / "keys" / "000001.key").write_text("secret")
        (home / "keys" / "000001.key").chmod(0o600)
        monkeypatch.setattr(policies, "_policy", Policy(**how, hidden=(str(home),)))
        info = server.status()
        socket = f"{info.socket_dir}/.s.PGSQL.{info.port}"
        secrets = [home / "keys", home / "keys/000001.key", home / "postgres.pgpass", home / "postgres", socket]
        assert await gained(local.READ_SECRETS, paths=[str(path) for path in secrets]) == []
        assert await gained(local.UNCOVER, paths=[str(home), str(home / "keys")]) == []
        assert await gained(local.ASK_DATABASE, path=socket, port=info.port) == []
        shown = await run_process(["/bin/cat", str(home / "postgres.pgpass"), str(open_directory / "data.txt")])
        assert shown.stdout.text == "for tasks"


@pytest.mark.service
async def test_our_own_nats_server_asks_for_a_login_and_no_list_of_processes_shows_it(tmp_path: Path) -> None:
    """INV-199."""
    async with running_nats(tmp_path / "nats", login=Login(USER, "s3cret-of-nats")) as server:
        port = int(server.url.rpartition(":")[2])
        assert await gained(local.ASK_NATS, port=port) == []
        (command,) = [command for _, _, command in processes(server.pid)]
        assert "nats.conf" in command
        assert "s3cret-of-nats" not in command
        assert (tmp_path / "nats" / "nats.conf").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "namespaces", [pytest.param(True, marks=spaces, id="namespaces"), pytest.param(False, id="none")]
)
async def test_nobody_survives_a_task(namespaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-202: not in another session, not as an orphan, not one that ignores signals; of Python and of a shell."""
    monkeypatch.setattr(policies, "_policy", Policy(namespaces=namespaces))
    by_python, by_shell = tmp_path / "python", tmp_path / "shell"
    assert await gained(local.LEAVE_A_DAEMON, path=str(by_python)) == "left"
    program = local.LEAVE_A_DAEMON.replace("path", repr(str(by_shell)))
    ended = await run_process(["/bin/sh", "-c", f'{sys.executable} -c "$CODE"'], env={"CODE": program})
    assert ended.exit_code == 0, ended
    for path in (by_python, by_shell):
        with path.open() as held:
            # Whoever holds the lock is alive.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("bounded", ["by a control group", "by watching"])
async def test_the_processes_of_a_task_share_one_bound_on_memory(bounded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-201: each is below the bound, all of them together are not."""
    monkeypatch.setattr(policies, "_policy", Policy(namespaces=policies.namespaces_obstacle() is None))
    if bounded == "by watching":
        monkeypatch.setattr(confined_processes, "bounded_group", lambda memory_bytes: None)
    elif confined_processes.bounded_group(1 << 26) is None:
        pytest.skip("no control groups may be made here")
    async with asyncio.timeout(60):
        answer = await attacked(local.TAKE_MEMORY, memory_mb=96, children=8, size=70 << 20)
    assert answer.how == "died" or answer.body.get("result", 0) < 8, answer


ORDINARY = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from noetl.engine.confinement import kernel, policy as policies
from noetl.engine.tools.programs.process import run_process
place = Path(sys.argv[1])
# The interpreter may be below root's own directory, so it is shown to the other account elsewhere.
kernel.unshare(kernel.NEW_MOUNTS); kernel.make_private()
kernel.bind(sys.base_prefix, str(place / "python"))
sys.path = [path.replace(sys.base_prefix, str(place / "python")) for path in sys.path]
sys.executable = str(place / "python/bin" / Path(os.path.realpath(sys.executable)).name)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534); os.chdir(place)
home = Path("home"); home.mkdir(); (home / "key").write_text("secret"); Path("data").write_text("data")
assert policies.policy().namespaces, policies.policy()
policies.hide([home])
print(asyncio.run(run_process(["/bin/sh", "-c", "ls -A home; cat home/key data; echo made > made; umount home"])).stdout.text)
"""


@as_root
@spaces
def test_an_ordinary_account_hides_its_secrets_in_a_namespace(open_directory: Path) -> None:
    """INV-200: tasks of somebody who is not root cannot be another user, and find no secrets either."""
    (open_directory / "python").mkdir()
    os.chown(open_directory, 65_534, 65_534)
    command = [sys.executable, "-c", ORDINARY, str(open_directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("data", 0), done.stderr
    assert (open_directory / "made").read_text() == "made\n"
