"""A disk that can be full: a small file system of its own for the node's files, where this account may mount one."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

SIZE_MB: Final = 512


class SmallDisk:
    """A directory that is a file system of its own, or an ordinary one where none can be mounted."""

    def __init__(self, directory: Path, size_mb: int = SIZE_MB) -> None:
        self.directory = directory
        self.mounted = False
        self._size_mb = size_mb

    def mount(self) -> bool:
        """Make the directory a small file system; False where the account may not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        program = shutil.which("mount")
        if program is None or os.geteuid() != 0:
            return False
        command = [program, "-t", "tmpfs", "-o", f"size={self._size_mb}m,mode=0755", "tmpfs", str(self.directory)]
        self.mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
        return self.mounted

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Remove the file system with all that is in it."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.directory)], check=False, capture_output=True)

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"
