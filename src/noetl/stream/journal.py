"""Which facts were acknowledged and are not known to be in the ledger yet: a file beside the process that published them.

It is read when a stream is found to have lost its disk, and only then: it tells exactly which facts are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from noetl.model.stream import Scope
from noetl.stream.port import Message

LARGEST = 4 << 20
"""At this size a file is ended and the next begun; a file whose facts are all in the ledger is removed."""


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


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Noted).decode


class Journal:
    """The files of one process; nothing waits for the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._file: int | None = None
        self._size = 0

    def note(self, created: str, messages: Sequence[Message], sequences: Sequence[int]) -> None:
        """Write down what was acknowledged."""
        lines = b"".join(
            _encode(_noted(created, message, sequence)) + b"\n"
            for message, sequence in zip(messages, sequences, strict=True)
        )
        if self._file is None or self._size > LARGEST:
            self._begin()
        assert self._file is not None
        os.write(self._file, lines)
        self._size += len(lines)

    def close(self) -> None:
        """Close the file; what is in it stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _begin(self) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._number += 1
        name = self._directory / f"facts-{os.getpid()}-{self._number}.jsonl"
        self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size


def noted_in(directory: Path) -> Iterator[tuple[Path, list[Noted]]]:
    """Give what the files of a directory say, file by file; a line that was cut is left out."""
    for path in sorted(directory.glob("facts-*.jsonl")):
        found = []
        for line in path.read_bytes().splitlines():
            try:
                found.append(_decode(line))
            except msgspec.MsgspecError:
                continue
        yield path, found


def _noted(created: str, message: Message, sequence: int) -> Noted:
    tenant_id, organization_id, event_id = message.message_id.split("/")
    return Noted(created, sequence, message.shard, tenant_id, organization_id, message.execution_id, int(event_id))
