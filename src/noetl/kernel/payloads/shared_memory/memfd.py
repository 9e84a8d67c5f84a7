"""Tier 1.5 by way of a node broker: tables in sealed anonymous memory, found and passed on by the broker.

For pods whose processes share a socket but no directory of shared memory. A sealed region is written once, so none is
used again. Whatever goes wrong is counted and answered with None.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import secrets
import socket
import sys
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from noetl import faults
from noetl.kernel.payloads.consumers import Origin
from noetl.kernel.payloads.figures import Figures
from noetl.kernel.payloads.shared_memory.broker import MESSAGE_BYTES, Answer, Request, is_sealed, peer_uid
from noetl.kernel.payloads.shared_memory.node import node_tag
from noetl.kernel.payloads.shared_memory.port import Doubt, Filed, check_hint
from noetl.kernel.payloads.shared_memory.region import HEADER_BYTES, pack_header, read_header, region_name
from noetl.kernel.payloads.shared_memory.shm import MOST_ATTACHED, copied
from noetl.model.payload_ref import IpcHint, PayloadRef

_TIMEOUT: Final = 1.0
_RETRY_SECONDS: Final = 1.0
_SEALS: Final = ("F_SEAL_SEAL", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_WRITE")


def is_available() -> bool:
    """Tell whether this system has anonymous memory that can be passed on."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


class BrokeredMemory:
    """The node's memory as one process reaches it through the broker."""

    def __init__(self, path: Path, node_id: str, grace: float, figures: Figures) -> None:
        self._path = path
        self._node_id = node_id
        self._tag, self._owner = node_tag(node_id), secrets.token_hex(4)
        self._grace = grace
        self._figures = figures
        self._numbers = itertools.count(1)
        self._attached: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._peer: socket.socket | None = None
        self._failed_at = -_RETRY_SECONDS

    def put(self, key: str, data: bytes | memoryview, schema_digest: str, origin: Origin) -> IpcHint | None:
        """Offer a table to the node; None if it was not taken."""
        faults.reach("shm.before_write")
        answer, _ = self._asked(Request("admit", length=len(data)))
        if answer is None:
            return None
        if not answer.taken:
            self._figures.exhausted()
            return None
        name = region_name(origin.execution_id, origin.frame_id, self._tag, self._owner, next(self._numbers))
        until = datetime.now(UTC) + timedelta(seconds=origin.lease_seconds + self._grace)
        hint = IpcHint(node_id=self._node_id, shm_name=name, schema_digest=schema_digest, valid_until=until)
        try:
            file = _written(name, data)
        except OSError:
            self._figures.passed("ipc", "full")
            return None
        try:
            faults.reach("shm.after_write")
            answer, _ = self._asked(Request("offer", key=key, filed=Filed(hint, len(data))), file)
        finally:
            os.close(file)
        if answer is None or not answer.taken:
            if answer is not None:
                self._figures.exhausted()
            return None
        faults.reach("shm.after_hint")
        self._figures.wrote("ipc", len(data))
        return hint

    def attach(self, key: str, ref: PayloadRef) -> memoryview | None:
        """Return a table's bytes where they lie; None for any doubt."""
        answer, file = self._asked(Request("find", key=key))
        if answer is None or answer.filed is None or file is None:
            return None
        try:
            check_hint(answer.filed, ref, self._node_id)
            if not is_sealed(file):
                raise Doubt("owner")
            if os.fstat(file).st_size < HEADER_BYTES + ref.bytes:
                raise Doubt("length")
            if read_header(os.pread(file, HEADER_BYTES, 0)) != ref.bytes:
                raise Doubt("header")
            if len(self._attached) >= MOST_ATTACHED:
                return memoryview(copied(file, ref.bytes))
            mapping = mmap.mmap(file, HEADER_BYTES + ref.bytes, access=mmap.ACCESS_READ)
            self._attached.add(mapping)
            return memoryview(mapping)[HEADER_BYTES:]
        except Doubt as doubt:
            self._figures.passed("ipc", str(doubt))
        except (OSError, ValueError):
            self._figures.passed("ipc", "error")
        finally:
            os.close(file)
        return None

    def hint(self, key: str) -> IpcHint | None:
        """Return where a table lies."""
        answer, file = self._asked(Request("find", key=key))
        if file is not None:
            os.close(file)
        return answer.filed.hint if answer is not None and answer.filed is not None else None

    def drop(self, key: str) -> None:
        """Make a table unknown."""
        self._asked(Request("drop", key=key))

    def in_use(self) -> int:
        """Return the bytes in use on the whole node."""
        answer, _ = self._asked(Request("status"))
        return 0 if answer is None else answer.in_use

    def sweep(self) -> int:
        """Nothing outlives the broker, so there is nothing to sweep."""
        return 0

    def close(self) -> None:
        """Leave the broker; it keeps what it was given until its time is over."""
        with self._lock:
            self._hang_up()

    def _asked(self, request: Request, file: int | None = None) -> tuple[Answer | None, int | None]:
        """Send a request and return the answer with its descriptor; None where the broker does not answer."""
        with self._lock:
            found: list[int] = []
            try:
                peer = self._connected()
                if peer is None:
                    return None, None
                socket.send_fds(peer, [msgspec.json.encode(request)], [] if file is None else [file])
                data, found, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, 1)
                if not data:
                    raise ConnectionResetError
                return msgspec.json.decode(data, type=Answer), found[0] if found else None
            except (OSError, msgspec.DecodeError):
                for one in found:
                    os.close(one)
                self._figures.passed("ipc", "broker")
                self._failed_at = time.monotonic()
                self._hang_up()
                return None, None

    def _connected(self) -> socket.socket | None:
        if self._peer is None:
            if time.monotonic() - self._failed_at < _RETRY_SECONDS:
                return None
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._peer = peer
            peer.settimeout(_TIMEOUT)
            peer.connect(str(self._path))
            if peer_uid(peer) != os.geteuid():
                raise PermissionError("the broker belongs to somebody else")
        return self._peer

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def _written(name: str, data: bytes | memoryview) -> int:
    file = os.memfd_create(name[1:], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in (pack_header(len(data)), data):
            left = memoryview(part)
            while left:
                left = left[os.write(file, left) :]
        seals = 0
        for seal in _SEALS:
            seals |= getattr(fcntl, seal)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(file)
        raise
    return file
