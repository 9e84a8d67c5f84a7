"""Makes the settings of a classic Spark session, and one session of its own for each run.

UTC, no guessing of partition types, no SQL over file names, a fair pool per organization, nothing on the terminal.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl.errors import InputError
from noetl.spark.session.options import SparkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
"""What every session has, wherever it runs."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def configuration(options: SparkOptions, scratch: Path) -> dict[str, str]:
    """Return Spark's settings for a driver; what the user sets stands over what we choose, but not over SESSION."""
    chosen = {
        "spark.app.name": "noetl",
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(Path(options.home, "warehouse").absolute()),
        "spark.local.dir": str(scratch / "local"),
        "spark.driver.memory": options.memory,
    }
    if options.kind == "local":
        chosen["spark.sql.shuffle.partitions"] = str(max(8, 4 * (os.cpu_count() or 1)))
    if is_loopback(options.master):
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if options.pack is not None:
        chosen |= packed(options.pack)
    return chosen | options.conf | SESSION | {"spark.master": options.master}


def packed(archive: str) -> dict[str, str]:
    """Return what lets executors run the Python of a packed environment."""
    return {
        "spark.archives": f"{archive}#environment",
        "spark.executorEnv.PYTHONPATH": "./environment/site-packages",
    }


def is_loopback(master: str) -> bool:
    """Whether Spark runs on this machine alone, so that nothing of it needs to be reached from elsewhere."""
    if master.startswith("local"):
        return True
    return master.startswith(("spark://", "sc://")) and urlsplit(master).hostname in _LOOPBACK


def new_session(session: SparkSession, settings: Mapping[str, str], job: str) -> SparkSession:
    """Return a session of its own with the settings of a job."""
    own = session.newSession()
    apply(own, settings, job)
    return own


def apply(own: SparkSession, settings: Mapping[str, str], job: str) -> None:
    """Set what every session has and a job's own settings; one that Spark fixes at its start is refused."""
    for key, value in SESSION.items():
        own.conf.set(key, value)
    for key, value in settings.items():
        if key in SESSION:
            raise InputError(f"the spark setting {key} of job {job!r} is the same for all jobs and cannot be changed")
        try:
            own.conf.set(key, value)
        except Exception as error:
            raise InputError(
                f"the spark setting {key} of job {job!r} cannot be set for one job: {str(error).splitlines()[0]}",
                hint="set it for all drivers under spark.conf of the settings",
            ) from error
