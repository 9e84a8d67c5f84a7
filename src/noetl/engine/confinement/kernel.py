"""What the standard library lacks of Linux: namespaces, mounts, capabilities and process controls, called through libc.

Its code is handed to an interpreter that has loaded nothing, so it imports as little as it can.
"""

from __future__ import annotations

import ctypes
import errno
import os

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PIDS = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
_PARENT_DEATH, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 24, 36, 38
_MOUNT_SETATTR, _BELOW_TOO = 442, 0x8000
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63

OF_FILES = (0, 1, 3, 4, 5, 6, 7, 10)
"""Capabilities root keeps in a namespace of ours: owners and modes of files, signals, user ids, low ports. None undoes a mount."""

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave namespaces of the parent for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def make_private() -> None:
    """Let no mount of ours reach the namespace we come from."""
    _mount(b"none", b"/", None, _RECURSIVE | _PRIVATE)


def cover(directory: str) -> None:
    """Put an empty directory in memory over a directory; `seal` makes it read-only."""
    _mount(b"none", os.fsencode(directory), b"tmpfs", _NO_SUID | _NO_DEVICES, b"mode=0755,size=64k")


def seal(directory: str) -> None:
    """Let nobody write to a cover."""
    _mount(b"none", os.fsencode(directory), None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)


def bind(source: str, target: str) -> None:
    """Let a path show what another one holds."""
    _mount(os.fsencode(source), os.fsencode(target), None, _BIND | _RECURSIVE)


def read_only(path: str) -> None:
    """Let nobody write below a path by its present name, whatever is mounted there."""
    bind(path, path)
    attributes = (ctypes.c_uint64 * 4)(1, 0, 0, 0)
    result = _libc.syscall(_MOUNT_SETATTR, -100, os.fsencode(path), _BELOW_TOO, attributes, ctypes.sizeof(attributes))
    if result != 0 and ctypes.get_errno() == errno.ENOSYS:  # before Linux 5.12, where mounts below stay as they are
        seal(path)
        return
    _checked(result, f"mount_setattr on {path}")


def mount_memory(directory: str, size: int) -> None:
    """Put an empty directory in memory over a directory, for everybody to write up to so many bytes."""
    _mount(b"none", os.fsencode(directory), b"tmpfs", _NO_SUID | _NO_DEVICES, b"mode=1777,size=%d" % size)


def mount_processes() -> None:
    """Let /proc show the processes of our namespace alone."""
    _mount(b"proc", b"/proc", b"proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)


def die_with_parent() -> None:
    """Be killed when the parent ends, however it ends."""
    _prctl(_PARENT_DEATH, 9)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_SUBREAPER, 1)


def gain_nothing() -> None:
    """Let no program that is run give more rights than there are."""
    _prctl(_NO_NEW_PRIVILEGES, 1)


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Give up every other capability, for this process and for all programs it runs."""
    for number in range(_LAST_CAPABILITY + 1):
        if number not in kept:
            _libc.prctl(_DROP_BOUND, number, 0, 0, 0)  # fails for numbers that the kernel does not have
    bits = sum(1 << number for number in kept)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    _checked(_libc.capset(header, sets), "capset")


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _checked(_libc.mount(source, target, kind, ctypes.c_ulong(flags), options), f"mount on {os.fsdecode(target)}")


def _prctl(what: int, value: int) -> None:
    _checked(_libc.prctl(what, value, 0, 0, 0), f"prctl {what}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
