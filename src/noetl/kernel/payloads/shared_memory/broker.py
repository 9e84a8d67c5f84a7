"""The node broker: keeps tables in anonymous memory for the processes of a node, and hands out descriptors of it.

Requests and answers are single messages on a Unix socket; a region travels as a descriptor beside its message. Only
processes of the same user are answered. What is taken is sealed, so that nobody can change or cut it any more.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import selectors
import socket
import struct
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.kernel.payloads.shared_memory.port import Filed
from noetl.kernel.payloads.shared_memory.region import HEADER_BYTES, charge_for, read_header

MESSAGE_BYTES: Final = 8192
_CREDENTIALS: Final = struct.Struct("3i")
_WAIT_SECONDS: Final = 1.0


class Request(msgspec.Struct, omit_defaults=True):
    """What a process asks of the broker."""

    do: str
    """`admit`, `offer` (with a descriptor), `find`, `drop` or `status`."""
    key: str = ""
    filed: Filed | None = None
    length: int = 0


class Answer(msgspec.Struct, omit_defaults=True):
    """What the broker answers; a found table's descriptor comes with it."""

    taken: bool = False
    filed: Filed | None = None
    in_use: int = 0
    regions: int = 0


class _Kept(msgspec.Struct):
    filed: Filed
    file: int
    charge: int


class Broker:
    """Serves one socket in the thread that calls `serve`."""

    def __init__(self, path: Path, budget: int) -> None:
        self.path = path
        self._budget = budget
        self._kept: dict[str, _Kept] = {}
        self._ends: list[tuple[float, str, str]] = []
        self._in_use = 0
        self._selector = selectors.DefaultSelector()
        self._listener = _listening(path)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stopped, selectors.EVENT_READ)

    def serve(self) -> None:
        """Answer until `stop` is called, then let every region go."""
        try:
            while True:
                for event, _ in self._selector.select(_WAIT_SECONDS):
                    if event.fileobj is self._stopped:
                        return
                    if event.fileobj is self._listener:
                        self._accept()
                    else:
                        assert isinstance(event.fileobj, socket.socket)
                        self._serve_one(event.fileobj)
                self._expire()
        finally:
            self._close()

    def stop(self) -> None:
        """End `serve`, from any thread."""
        self._stop.send(b"\0")

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        if peer_uid(peer) != os.geteuid():
            peer.close()
            return
        peer.settimeout(0)
        self._selector.register(peer, selectors.EVENT_READ)

    def _serve_one(self, peer: socket.socket) -> None:
        files: list[int] = []
        try:
            data, files, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, 1)
            if not data:
                raise ConnectionResetError
            answer, file = self._answered(msgspec.json.decode(data, type=Request), files)
            socket.send_fds(peer, [msgspec.json.encode(answer)], [] if file is None else [file])
        except BlockingIOError:
            return
        except (OSError, msgspec.DecodeError):
            self._selector.unregister(peer)
            peer.close()
        finally:
            for one in files:
                os.close(one)

    def _answered(self, request: Request, files: list[int]) -> tuple[Answer, int | None]:
        if request.do == "admit":
            return Answer(taken=self._fits(request.length)), None
        if request.do == "offer":
            return Answer(taken=self._offered(request, files)), None
        if request.do == "drop":
            self._drop(request.key)
        kept = self._kept.get(request.key) if request.do == "find" else None
        answer = Answer(filed=None if kept is None else kept.filed, in_use=self._in_use, regions=len(self._kept))
        return answer, None if kept is None else kept.file

    def _fits(self, length: int) -> bool:
        self._expire()
        return self._in_use + charge_for(HEADER_BYTES + length) <= self._budget

    def _offered(self, request: Request, files: list[int]) -> bool:
        filed = request.filed
        if filed is None or not files or not request.key:
            return False
        if not is_sealed(files[0]) or read_header(os.pread(files[0], HEADER_BYTES, 0)) != filed.length:
            return False
        self._drop(request.key)
        if not self._fits(filed.length):
            return False
        charge = charge_for(HEADER_BYTES + filed.length)
        self._kept[request.key] = _Kept(filed, fcntl.fcntl(files[0], fcntl.F_DUPFD_CLOEXEC, 0), charge)
        self._in_use += charge
        seconds = (filed.hint.valid_until - datetime.now(UTC)).total_seconds()
        heapq.heappush(self._ends, (time.monotonic() + seconds, request.key, filed.hint.shm_name))
        return True

    def _expire(self) -> None:
        while self._ends and self._ends[0][0] <= time.monotonic():
            _, key, name = heapq.heappop(self._ends)
            kept = self._kept.get(key)
            if kept is not None and kept.filed.hint.shm_name == name:
                self._drop(key)

    def _drop(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            os.close(kept.file)
            self._in_use -= kept.charge

    def _close(self) -> None:
        for key in list(self._kept):
            self._drop(key)
        for one in list(self._selector.get_map().values()):
            fileobj: Any = one.fileobj
            fileobj.close()
        self._stop.close()
        self._selector.close()
        self.path.unlink(missing_ok=True)


def is_sealed(file: int) -> bool:
    """Tell whether a region can no longer be written or cut by anybody."""
    needed = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK
    try:
        return fcntl.fcntl(file, fcntl.F_GET_SEALS) & needed == needed
    except OSError:
        return False


def peer_uid(peer: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, as the system says."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def _listening(path: Path) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with suppress(FileNotFoundError):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            listener.close()
            raise FileExistsError(f"another broker serves {path}")
        finally:
            probe.close()
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(128)
    return listener
