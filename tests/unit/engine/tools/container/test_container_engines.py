"""Containers in an engine of the worker: a program that stands in for docker and podman notes how it is called."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.engine.tools.container.engine import cpus, memory_bytes
from noetl.engine.tools.container.tool import ContainerTool
from noetl.engine.tools.outcome import Outcome
from noetl.engine.tools.port import Call

CallOf = Callable[..., Call]
tool = ContainerTool()

ENGINE = f"""#!{sys.executable}
import json, os, pathlib, signal, sys
verb, *rest = sys.argv[1:]
home = pathlib.Path(__file__).parent
given = sys.stdin.read() if verb == "run" else ""
noted = {{"argv": sys.argv[1:], "given": given, "key": os.environ.get("KEY"), "secret": os.environ.get("NOETL_SECRET")}}
volumes = [word.partition(":")[0] for word in rest if word.endswith(":/noetl:ro")]
if volumes:
    noted["files"] = {{file.name: file.read_text() for file in pathlib.Path(volumes[0]).iterdir()}}
with (home / "noted").open("a") as notes:
    notes.write(json.dumps(noted) + "\\n")
if verb == "run" and "taken" in rest:
    print('docker: Conflict. The container name "/x" is already in use', file=sys.stderr)
    sys.exit(125)
if verb == "run" and "waits" in rest:
    print("begun", flush=True)
    if (home / "pids").exists():
        (home / "pids").write_text("x")
    signal.pause()
if verb == "wait":
    print(4)
if verb == "logs":
    print("from before")
if verb == "run":
    print("out")
    print("err", file=sys.stderr)
    sys.exit({{"exit-3": 3, "oom": 137, "broken": 125}}.get(next((word for word in rest if word in ("exit-3", "oom", "broken")), ""), 0))
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a program called podman, alone on PATH, with nothing else that could run containers."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NOETL_SECRET", "the worker's own")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "podman").write_text(ENGINE)
    (tmp_path / "podman").chmod(0o755)
    return tmp_path


def noted(engine: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (engine / "noted").read_text().splitlines()]


def error_of(outcome: Outcome) -> tuple[str, str | None]:
    assert outcome.error is not None, outcome
    return outcome.error.kind, outcome.error.code


async def test_a_container_runs_in_the_engine_on_path(engine: Path, call_of: CallOf, tmp_path: Path) -> None:
    """INV-173: no value of the environment is an argument of a process."""
    script = tmp_path / "job.sh"
    script.write_text("echo from the script")
    call = call_of(
        "container",
        image="ok",
        env={"TOKEN": "s3cret", "KEY": "line 1\nline 2", "ON": True},
        resources={"limits": {"cpu": "250m", "memory": "128Mi"}},
        working_dir="/work",
        script=str(script),
        input={"n": 1},
    )
    outcome = await tool.run(call)
    assert outcome.status == "ok", outcome
    assert outcome.data["runtime"] == "podman"
    assert outcome.data["output"] == "out\nerr\n"
    (run,) = noted(engine)
    argv = run["argv"]
    assert argv[:6] == ["run", "--rm", "--name", outcome.data["job_name"], "--env-file", "/dev/stdin"]
    assert run["given"].splitlines() == ['NOETL_INPUT={"n": 1}', "TOKEN=s3cret", "ON=true"]
    assert run["key"] == "line 1\nline 2"
    assert "s3cret" not in " ".join(argv)
    assert "line 1" not in " ".join(argv)
    assert run["secret"] is None
    assert argv[argv.index("--memory") + 1] == str(128 * 1024 * 1024)
    assert argv[argv.index("--cpus") + 1] == "0.25"
    assert argv[argv.index("--entrypoint") + 1] == "/bin/sh"
    assert argv[-3:] == ["ok", "-c", 'exec /bin/sh /noetl/main.sh "$NOETL_INPUT"']
    assert run["files"] == {"main.sh": "echo from the script"}


async def test_how_an_engine_ends_is_told(engine: Path, call_of: CallOf) -> None:
    assert error_of(await tool.run(call_of("container", image="exit-3"))) == ("unknown", "exit_3")
    limits = {"limits": {"memory": "32Mi"}}
    assert error_of(await tool.run(call_of("container", image="oom", resources=limits))) == (
        "storage_quota",
        "oom_killed",
    )
    assert error_of(await tool.run(call_of("container", image="broken")))[0] == "connection"
    taken = await tool.run(call_of("container", image="taken"))
    assert error_of(taken) == ("unknown", "exit_4")
    assert taken.data["output"] == "from before\n"
    assert "rm" not in [note["argv"][0] for note in noted(engine)]


async def test_cancelling_and_time_outs_remove_the_container(engine: Path, call_of: CallOf) -> None:
    os.mkfifo(engine / "pids")
    pids = os.open(engine / "pids", os.O_RDONLY | os.O_NONBLOCK)
    begun = asyncio.Event()
    asyncio.get_running_loop().add_reader(pids, begun.set)
    running = asyncio.ensure_future(tool.run(call_of("container", image="waits")))
    async with asyncio.timeout(20):
        await begun.wait()
    asyncio.get_running_loop().remove_reader(pids)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    name = noted(engine)[0]["argv"][3]
    assert noted(engine)[-1]["argv"] == ["rm", "--force", name]
    os.close(pids)
    (engine / "pids").unlink()
    late = await tool.run(call_of("container", image="waits", timeout=2.0))
    assert error_of(late) == ("timeout", "deadline_exceeded")
    assert late.data["output"] == "begun\n"
    assert noted(engine)[-1]["argv"] == ["rm", "--force", name]


async def test_what_only_a_cluster_can_do_is_refused(engine: Path, call_of: CallOf) -> None:
    for more in (
        {"service_account": "x"},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
        {"volumes": [{"mount_path": "/x", "hostPath": {"path": "/"}}]},
        {"resources": {"limits": {"memory": "much"}}},
    ):
        assert error_of(await tool.run(call_of("container", image="ok", **more)))[0] == "schema", more
    assert not (engine / "noted").exists()


async def test_without_engine_and_cluster_the_error_says_what_was_looked_for(engine: Path, call_of: CallOf) -> None:
    (engine / "podman").unlink()
    outcome = await tool.run(call_of("container", image="ok"))
    assert error_of(outcome)[0] == "schema"
    assert outcome.error is not None
    for word in ("auth", "service account", str(engine / "none"), "docker", "podman"):
        assert word in outcome.error.message
    asked = await tool.run(call_of("container", runtime={"provider": "docker", "image": "ok"}))
    assert asked.error is not None
    assert "no program docker" in asked.error.message


def test_quantities_are_read_as_kubernetes_writes_them() -> None:
    assert [memory_bytes(text) for text in ("1", "1k", "1.5Ki", "2Gi")] == [1, 1000, 1536, 2 * 1024**3]
    assert [cpus(text) for text in ("2", "250m", ".5")] == [2.0, 0.25, 0.5]
