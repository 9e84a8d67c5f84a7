"""Which facts were acknowledged and are not known to be in the ledger yet: files beside the process that published them.

They are read to tell exactly which facts a stream lost. A file is locked for as long as it is written; `noted_files`
lets go of those whose facts are in the ledger.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from noetl.faults import reach
from noetl.kernel.stream.encoding import message_id
from noetl.kernel.stream.port import Message, Place
from noetl.model.mark import ReadToken
from noetl.model.stream import Scope

LARGEST = 1 << 20
"""At this size a file is ended and the next begun: some eight thousand facts."""


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """One acknowledged fact."""

    created: str
    sequence: int
    shard: int
    tenant_id: str
    organization_id: str
    execution_id: int
    event_id: int

    @property
    def scope(self) -> Scope:
        """Whose fact it is."""
        return Scope(self.tenant_id, self.organization_id)

    @property
    def place(self) -> Place:
        """Where it was put."""
        return Place(self.shard, self.sequence)

    @property
    def message_id(self) -> str:
        """What stands at its place for as long as the stream has it."""
        return message_id(self.tenant_id, self.organization_id, self.event_id)

    @property
    def token(self) -> ReadToken:
        """What its writer was given."""
        return ReadToken(self.execution_id, self.event_id, self.shard, self.sequence, self.created)

    def told(self) -> dict[str, Any]:
        """Return what to tell of it."""
        return {
            "event_id": str(self.event_id), "execution_id": str(self.execution_id), "tenant_id": self.tenant_id,
            "organization_id": self.organization_id, "shard": self.shard, "sequence": self.sequence,
            "read_token": str(self.token),
        }  # fmt: skip


_encode = msgspec.json.Encoder().encode


class Journal:
    """The files of one process; nothing waits for the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: int | None = None
        self._size = 0

    def note(self, created: str, messages: Sequence[Message], sequences: Sequence[int]) -> None:
        """Write down what was acknowledged."""
        lines = written(
            _noted(created, message, sequence) for message, sequence in zip(messages, sequences, strict=True)
        )
        if self._file is None or self._size > LARGEST:
            self._begin()
        assert self._file is not None
        try:
            if os.write(self._file, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            # A line that is cut off would spoil the next one, too.
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(lines)

    def close(self) -> None:
        """Close the file, which unlocks it; what is in it stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _begin(self) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        # Names ascend with time, so that files are read in the order of what they note.
        path = self._directory / f"facts-{time.time_ns()}-{os.getpid()}.jsonl"
        making = path.with_suffix(".making")
        self._file = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        # It is locked before it has a name that anybody looks for.
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        reach("noted.before_name")
        making.rename(path)


def written(noted: Iterable[Noted]) -> bytes:
    """Return the lines of a file that notes these facts."""
    return b"".join(_encode(one) + b"\n" for one in noted)


def _noted(created: str, message: Message, sequence: int) -> Noted:
    tenant_id, organization_id, event_id = message.message_id.split("/")
    return Noted(created, sequence, message.shard, tenant_id, organization_id, message.execution_id, int(event_id))
