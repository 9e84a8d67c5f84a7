"""What a Spark driver process is told at its start: master, memory, settings, directories and the lake. Values only."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["local", "standalone", "kubernetes", "yarn", "connect"]


class SparkOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of all drivers of one worker; made from the settings, sent over the socket, never on a command line."""

    home: str
    """Directory of warehouse, logs, unpacked bundles and scratch files."""
    cache: str
    """Directory of the class-data archive and the Java shim; may be shared by several homes."""
    master: str = "local[*]"
    memory: str = "2g"
    conf: dict[str, str] = {}
    archive: bool = True
    pack: str | None = None
    """A packed environment for the executors of a cluster."""
    lake_root: str = ""
    lake_options: dict[str, str] = {}
    lake_native: bool = True
    operators: str = "noetl.spark.operators"
    """The module whose `run_batch` and `make_unique` do the work."""
    start_seconds: float = 120.0

    @property
    def kind(self) -> Kind:
        """How Spark is reached."""
        return kind_of(self.master)

    @property
    def logs(self) -> Path:
        """Where drivers write their logs."""
        return Path(self.home, "logs")


def kind_of(master: str) -> Kind:
    """Tell by a master's address how Spark is reached."""
    if master.startswith("sc://"):
        return "connect"
    if master.startswith("spark://"):
        return "standalone"
    if master.startswith("k8s://"):
        return "kubernetes"
    return "yarn" if master == "yarn" else "local"
