"""Projectors as processes: started, watched by what they print, and ended with the test."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

LEASE_SECONDS = 3
PATIENCE = 60.0


class ProjectorProcess:
    """One `noetl projector`, and the shards it says that it has."""

    def __init__(self, url: str, name: str, folder: Path, **environ: str) -> None:
        self.name = name
        self.shards: frozenset[int] = frozenset()
        self._told = threading.Condition()
        self._log = folder / f"{name}.log"
        settings = {
            "NOETL_DATABASE_URL": url,
            "NOETL_SHARD_ID": name,
            "NOETL_PROJECTIONS__LEASE_SECONDS": str(LEASE_SECONDS),
        }
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "noetl", "projector"],
                cwd=folder,
                env=dict(os.environ) | settings | environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("shards: "):
                with self._told:
                    self.shards = frozenset(int(one) for one in line.split()[1:] if one != "none")
                    self._told.notify_all()

    def until_it_has(self, count: int) -> bool:
        """Wait until it has so many shards, and tell whether it came to that."""
        with self._told:
            return self._told.wait_for(lambda: len(self.shards) == count, PATIENCE)

    def until_it_has_at_least(self, count: int) -> bool:
        """Wait until it has so many shards or more, and tell whether it came to that."""
        with self._told:
            return self._told.wait_for(lambda: len(self.shards) >= count, PATIENCE)

    def said(self) -> str:
        """Return what became of it and its log."""
        return f"{self.name} ({self.process.poll()}) has {sorted(self.shards)}:\n{self._log.read_text()}"

    def end(self) -> None:
        """Let nothing of it stay."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
