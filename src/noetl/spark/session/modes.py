"""Where Spark runs, behind one face: a JVM of our own (local, or client of a cluster), or a Spark Connect server.

Gives a session for each run, stops jobs by their tag, and brings a bundle's Python to whoever runs it.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.errors import Unavailable
from noetl.spark.session import class_archive, session
from noetl.spark.session.java import find_java
from noetl.spark.session.jvm import Jvm, start_jvm
from noetl.spark.session.options import SparkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_SESSIONS: Final = uuid.UUID("4c2e0f53-3d0f-5d0a-9a0b-6d6f65746c31")


class Mode(Protocol):
    """A running Spark."""

    application_id: str
    spark_version: str
    java_version: str

    def session(self, settings: Mapping[str, str], job: str, tag: str) -> SparkSession:
        """Return a session of its own for a run, named after the tag of its first work."""
        ...

    def release(self, used: SparkSession) -> None:
        """Let go of a run's session."""
        ...

    def use_code(self, directory: Path, zipped: Path) -> None:
        """Let the Python workers import what is in a bundle."""
        ...

    def interrupt(self, tag: str) -> None:
        """Stop the jobs that run under a tag now."""
        ...

    def interrupt_left(self, application_id: str, tag: str) -> None:
        """Stop what a driver that is gone left running, where that can be."""
        ...

    def wait_until_lost(self) -> None:
        """Return when Spark was lost and nothing can run on it any more; for ever otherwise."""
        ...

    def answers(self) -> bool:
        """Tell whether Spark answers; work that failed may be the first to notice that it was lost."""
        ...

    def close(self) -> None:
        """End the session and what was started for it."""
        ...

    def kill(self) -> None:
        """End at once, from any thread."""
        ...


def open_mode(options: SparkOptions, scratch: Path) -> Mode:
    """Start or reach the Spark that the options speak of."""
    return Connect(options) if options.kind == "connect" else Classic(options, scratch)


class Classic:
    """A JVM of our own: `local[*]`, or the client of a standalone, Kubernetes or YARN cluster."""

    def __init__(self, options: SparkOptions, scratch: Path) -> None:
        java = find_java(Path(options.cache))
        self._local = options.kind == "local"
        self._closing = False
        self._jvm: Jvm = start_jvm(options, java, scratch, class_archive.jvm_options(java, options))
        self._root = self._jvm.connect()
        self._context = self._root.sparkContext
        self.application_id = str(self._context.applicationId)
        self.spark_version = self._root.version
        self.java_version = java.version

    def session(self, settings: Mapping[str, str], job: str, tag: str) -> SparkSession:
        """Return a new session of the one context."""
        return session.new_session(self._root, settings, job)

    def release(self, used: SparkSession) -> None:
        """Drop the run's temporary views; the context stays."""
        with suppress(Exception):
            for view in used.catalog.listTables():
                if view.isTemporary:
                    used.catalog.dropTempView(view.name)

    def use_code(self, directory: Path, zipped: Path) -> None:
        """Put the bundle on the workers' path: its directory on this machine, its archive on a cluster's."""
        if self._local:
            path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH", ""))))
            self._context.environment["PYTHONPATH"] = path
        else:
            self._context.addPyFile(str(zipped))

    def interrupt(self, tag: str) -> None:
        """Cancel by tag; jobs that a session tagged by itself carry the tag inside a longer name."""
        self._context.cancelJobsWithTag(tag)
        scala: Any = self._context._jsc.sc()
        jobs = scala.statusStore().jobsList(None)
        for place in range(jobs.size()):
            job = jobs.apply(place)
            if job.status().toString() == "RUNNING" and job.jobTags().mkString("\n").find(f"-tag-{tag}") >= 0:
                scala.cancelJob(job.jobId())

    def interrupt_left(self, application_id: str, tag: str) -> None:
        """Nothing is left: the JVM of a client dies with its driver, and its executors with the application."""

    def wait_until_lost(self) -> None:
        """Return when the JVM has ended by itself, or was killed by somebody else."""
        self._jvm.process.wait()
        if self._closing:
            threading.Event().wait()

    def answers(self) -> bool:
        """Tell whether the JVM answers: its sockets are closed a moment before its end can be waited for."""
        jvm: Any = self._context._jvm
        try:
            jvm.java.lang.System.currentTimeMillis()
        except Exception:
            return self._closing
        return True

    def close(self) -> None:
        """Stop the context and the JVM."""
        self._closing = True
        with suppress(Exception):
            self._root.stop()
        self._jvm.close()

    def kill(self) -> None:
        """Kill the JVM."""
        self._jvm.process.kill()


class Connect:
    """A Spark Connect server, reached by its address; the sessions on it are named so that another can find them."""

    def __init__(self, options: SparkOptions) -> None:
        try:
            from pyspark.sql.connect.session import SparkSession
        except ImportError as error:
            raise Unavailable(
                f"Spark Connect needs packages that are not installed: {error}", hint="pip install 'noetl[connect]'"
            ) from error
        self._open: Any = SparkSession.builder
        self._url = options.master
        self._conf = {name: value for name, value in options.conf.items() if name.startswith("spark.sql.")}
        self._zipped: Path | None = None
        self._sessions: list[Any] = []
        self.application_id = str(uuid.uuid4())
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Functions of columns look here for whether they are to make columns of a server or of a JVM of their own.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        first = self._session_of(self.application_id)
        self.spark_version = str(first.version)
        self.java_version = ""

    def session(self, settings: Mapping[str, str], job: str, tag: str) -> SparkSession:
        """Return a session on the server under a name made of ours and the tag's."""
        own: Any = self._session_of(_session_id(self.application_id, tag))
        session.apply(own, self._conf | dict(settings), job)
        if self._zipped is not None:
            own.addArtifacts(str(self._zipped), pyfile=True)
        own.newSession = lambda: self.session(settings, job, f"{tag}/{uuid.uuid4()}")
        self._sessions.append(own)
        result: SparkSession = own
        return result

    def release(self, used: SparkSession) -> None:
        """End the run's session on the server, with those that were made of it."""
        # The list holds those of other runs too: only the one that was used, and what it made, may go.
        for one in [one for one in self._sessions if one is used]:
            self._sessions.remove(one)
            with suppress(Exception):
                one.stop()

    def use_code(self, directory: Path, zipped: Path) -> None:
        """Send the bundle's archive with each session from now on."""
        self._zipped = zipped

    def interrupt(self, tag: str) -> None:
        """Interrupt the tag in every session of ours."""
        for one in list(self._sessions):
            with suppress(Exception):
                one.interruptTag(tag)

    def interrupt_left(self, application_id: str, tag: str) -> None:
        """Interrupt everything in the session that a driver now gone had for a tag."""
        left = self._session_of(_session_id(application_id, tag))
        left.interruptAll()
        left.stop()

    def wait_until_lost(self) -> None:
        """Never return: the server is not ours, and it may be back for the next attempt."""
        threading.Event().wait()

    def answers(self) -> bool:
        """Say yes: a server that is away for one work may be back for the next."""
        return True

    def close(self) -> None:
        """End our sessions; the server stays."""
        for one in list(self._sessions):
            with suppress(Exception):
                one.stop()

    def kill(self) -> None:
        """Nothing of ours runs here but this process."""

    def _session_of(self, session_id: str) -> Any:
        joint = "" if "/;" in self._url else "/;"
        return self._open.remote(
            f"{self._url.rstrip('/')}{joint};session_id={session_id}".replace("/;;", "/;")
        ).create()


def _session_id(application_id: str, tag: str) -> str:
    # Spark wants version 4 in the name, though it is made, not drawn.
    return str(uuid.UUID(bytes=uuid.uuid5(_SESSIONS, f"{application_id}/{tag}").bytes, version=4))
