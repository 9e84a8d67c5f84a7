"""The node broker: tables in sealed anonymous memory, handed to processes of the same user, bounded, gone in time."""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa
import pytest

from noetl.kernel.payloads.codec import decode_table
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory import broker as broker_module
from noetl.kernel.payloads.shared_memory import memfd
from noetl.kernel.payloads.shared_memory.broker import Answer, Broker, Request
from noetl.kernel.payloads.shared_memory.memfd import BrokeredMemory
from noetl.kernel.payloads.shared_memory.port import Filed
from noetl.kernel.payloads.shared_memory.region import pack_header
from noetl.model.payload_ref import IpcHint
from noetl.testing.samples.tables import made_table

pytestmark = pytest.mark.skipif(not memfd.is_available(), reason="there is no anonymous memory to hand out")

MIB = 1 << 20
KEY = "0" * 40


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    serving = Broker(tmp_path / "broker.sock", 8 * MIB)
    thread = threading.Thread(target=serving.serve)
    thread.start()
    yield serving.path
    serving.stop()
    thread.join()
    assert not (tmp_path / "broker.sock").exists()


def client(path: Path, node: str = "n1") -> tuple[BrokeredMemory, Figures]:
    figures = Figures()
    return BrokeredMemory(path, node, 30, figures), figures


def test_a_table_passes_between_processes_without_a_copy(path: Path) -> None:
    """INV-104."""
    (writer, _), (reader, figures) = client(path), client(path)
    made = made_table(100_000)
    hint = writer.put(KEY, made.data, made.schema_digest, Origin(7, 3, 60))
    assert hint is not None
    assert hint.shm_name.startswith("/noetl-7-3-")
    assert reader.hint(KEY) == hint
    writer.close()
    view = reader.attach(KEY, made.ref)
    assert view is not None
    start, table = pa.py_buffer(view).address, decode_table(view)
    (chunk,) = table.column("n").chunks
    assert start <= chunk.buffers()[1].address < start + len(view)
    assert reader.in_use() > len(made.data)
    reader.drop(KEY)
    assert reader.attach(KEY, made.ref) is None
    assert reader.in_use() == 0
    assert table.column("n").to_pylist()[-1] == 99_999
    reader.close()
    assert figures.told().passed == {}


def test_nobody_can_change_what_was_handed_out(path: Path) -> None:
    """INV-106."""
    memory, figures = client(path)
    made = made_table(1000)
    assert memory.put(KEY, made.data, made.schema_digest, Origin()) is not None
    _, file = memory._asked(Request("find", key=KEY))
    assert file is not None
    with pytest.raises(PermissionError):
        os.write(file, b"!")
    with pytest.raises(PermissionError):
        os.ftruncate(file, 10)
    os.close(file)
    # What is not sealed, or does not hold what it says, is not taken.
    loose = os.memfd_create("loose", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(loose, pack_header(len(made.data)) + made.data)
    hint = IpcHint(
        node_id="n1", shm_name="/x", schema_digest=made.schema_digest, valid_until=datetime.now(UTC) + timedelta(1)
    )
    assert memory._asked(Request("offer", key="1" * 40, filed=Filed(hint, len(made.data))), loose)[0] == Answer()
    fcntl.fcntl(loose, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK)
    assert memory._asked(Request("offer", key="1" * 40, filed=Filed(hint, 5)), loose)[0] == Answer()
    assert memory._asked(Request("offer", key="1" * 40, filed=Filed(hint, len(made.data))), loose)[0] == Answer(
        taken=True
    )
    os.close(loose)
    memory.close()
    assert figures.told().passed == {}


def test_the_budget_and_the_time_of_regions_are_kept(path: Path) -> None:
    """INV-105."""
    memory, figures = client(path)
    made = made_table(700_000)
    took = [memory.put(f"{n}" * 40, made.data, made.schema_digest, Origin(1, 1, 60)) is not None for n in range(3)]
    assert took == [True, False, False]
    assert figures.told().exhausted == 2
    memory.drop("0" * 40)
    over = Origin(1, 1, -1000.0)
    assert memory.put("1" * 40, made.data, made.schema_digest, over) is not None
    assert memory.put("2" * 40, made.data, made.schema_digest, Origin(1, 1, 60)) is not None
    assert memory.attach("1" * 40, made.ref) is None
    memory.close()


def test_hints_of_another_node_or_schema_are_not_followed(path: Path) -> None:
    """INV-107."""
    (ours, _), (theirs, figures) = client(path), client(path, "n2")
    made = made_table(1000)
    ours.put(KEY, made.data, made.schema_digest, Origin())
    assert theirs.attach(KEY, made.ref) is None
    assert ours.attach(KEY, msgspec.structs.replace(made.ref, schema_digest="other")) is None
    assert figures.told().passed == {"ipc:node": 1}
    ours.close()
    theirs.close()


def test_without_a_broker_everything_goes_on_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-110."""
    made = made_table(1000)
    memory, figures = client(tmp_path / "nobody.sock")
    assert memory.put(KEY, made.data, made.schema_digest, Origin()) is None
    assert memory.attach(KEY, made.ref) is None
    assert figures.told().passed == {"ipc:broker": 1}
    monkeypatch.setattr(memfd, "_RETRY_SECONDS", 0.0)
    serving = Broker(tmp_path / "nobody.sock", 8 * MIB)
    thread = threading.Thread(target=serving.serve)
    thread.start()
    assert memory.put(KEY, made.data, made.schema_digest, Origin()) is not None
    with pytest.raises(FileExistsError):
        Broker(tmp_path / "nobody.sock", MIB)
    serving.stop()
    thread.join()
    assert memory.attach(KEY, made.ref) is None
    memory.close()


def test_a_process_of_another_user_is_not_answered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-107."""
    monkeypatch.setattr(broker_module, "peer_uid", lambda peer: os.geteuid() + 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(10)
        peer.connect(str(path))
        assert _answer(peer, msgspec.json.encode(Request("status"))) == b""
    monkeypatch.undo()
    monkeypatch.setattr(memfd, "peer_uid", lambda peer: os.geteuid() + 1)
    memory, figures = client(path)
    assert memory.hint(KEY) is None
    assert figures.told().passed == {"ipc:broker": 1}


def test_nonsense_ends_the_talk_and_nothing_else(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(10)
        peer.connect(str(path))
        assert _answer(peer, b"nonsense") == b""
    memory, _ = client(path)
    assert memory.in_use() == 0
    memory.close()


def test_many_tables_leave_no_descriptor(path: Path) -> None:
    memory, _ = client(path)
    made = made_table(2000)
    memory.put(KEY, made.data, made.schema_digest, Origin())
    before = psutil.Process().num_fds()
    for number in range(300):
        memory.put(f"{number:040d}", made.data, made.schema_digest, Origin())
        assert memory.attach(f"{number:040d}", made.ref) is not None
        memory.drop(f"{number:040d}")
    gc.collect()
    assert psutil.Process().num_fds() <= before + 1
    memory.close()


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    place = tmp_path / "broker.sock"
    environ = {**os.environ, "NOETL_PAYLOAD_STORE__CACHE__TIER_15_BROKER": str(place)}
    command = [sys.executable, "-m", "noetl", "node-broker"]
    serving = subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert serving.stdout is not None
    assert serving.stdout.readline().strip().endswith(f"listening on {place}")
    memory, _ = client(place)
    made = made_table(5000)
    assert memory.put(KEY, made.data, made.schema_digest, Origin()) is not None
    assert memory.attach(KEY, made.ref) is not None
    memory.close()
    serving.terminate()
    assert serving.wait(timeout=60) == 0
    serving.stdout.close()
    assert not place.exists()


def _answer(peer: socket.socket, message: bytes) -> bytes:
    try:
        peer.send(message)
        return peer.recv(100)
    except (BrokenPipeError, ConnectionResetError):
        return b""
