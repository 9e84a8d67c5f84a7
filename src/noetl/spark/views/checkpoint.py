"""What Spark wrote ahead for a batch: its range of the ledger and the watermark in force, read from the checkpoint.

Written before a batch runs and never changed, so a batch that is run again has the same range and the same watermark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noetl.errors import Corrupt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINES = 3
"""A version, what holds for the whole batch, and the offset of the one source."""


@dataclass(frozen=True)
class Planned:
    """The range of one batch: after one mark, up to another."""

    batch: int
    since: str | None
    mark: str
    watermark: datetime | None
    """Events at or before it are late; None before there is one."""


class Checkpoint:
    """The checkpoint of one query, on whatever file system Spark reaches."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._jvm: Any = session.sparkContext._jvm
        self._path = path
        self._configuration: Any = session._jsparkSession.sessionState().newHadoopConf()

    def planned(self, batch: int) -> Planned:
        """Return what was written ahead for a batch."""
        before = None if batch == 0 else read_offsets(self._text(f"offsets/{batch - 1}"))[0]
        mark, watermark = read_offsets(self._text(f"offsets/{batch}"))
        return Planned(batch, before, mark, watermark)

    def identity(self) -> str:
        """Return the id Spark gave the query when its checkpoint was made; another checkpoint has another."""
        return str(json.loads(self._text("metadata"))["id"])

    def _text(self, name: str) -> str:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._path}/{name}")
        try:
            opened = path.getFileSystem(self._configuration).open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8"))
            finally:
                opened.close()
        except Exception as problem:
            raise Corrupt(
                f"{name} of the checkpoint {self._path} cannot be read",
                hint="`noetl views rebuild` builds the view anew, with a checkpoint of its own",
            ) from problem


def read_offsets(text: str) -> tuple[str, datetime | None]:
    """Return the mark and the watermark of a batch from what Spark wrote ahead."""
    lines = text.strip().split("\n")
    if len(lines) != _LINES or lines[0] != "v1":
        raise Corrupt(f"the offsets of a batch are not of the one source a view has: {lines[0]}, {len(lines)} lines")
    about, offset = json.loads(lines[1]), json.loads(lines[2])
    since_epoch = int(about.get("batchWatermarkMs") or 0)
    watermark = datetime.fromtimestamp(since_epoch / 1000, UTC) if since_epoch > 0 else None
    return str(offset["mark"]), watermark
