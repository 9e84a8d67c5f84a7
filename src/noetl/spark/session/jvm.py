"""Starts the JVM a classic Spark session lives in, and ends it: never seen on the terminal, never left behind.

The JVM is started directly, not through Spark's shell scripts and their own launcher JVM, which cost a second and hide
its process. It dies with the process that started it: by the kernel on Linux, by the end of its input elsewhere.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from noetl.errors import Unavailable
from noetl.spark.session.java import Java
from noetl.spark.session.options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""What Spark's launcher passes, without the vector module: it is not needed and not in every Java."""
_LOG4J: Final = Path(__file__).parent.parent / "conf" / "log4j2.properties"
_POLL_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1
# Looked up here, since between fork and exec hardly anything may be done.
_prctl: Final = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def spark_home() -> Path:
    """Return where the installed Spark is; pyspark itself is not imported."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable("Spark is not installed", hint="pip install pyspark")
    return Path(spec.origin).parent


def class_path() -> tuple[str, ...]:
    """Return Spark's jars in the order that the launcher gives them; the class-data archive depends on it."""
    jars = sorted(map(str, (spark_home() / "jars").glob("*.jar")))
    return tuple(sorted(jars, key=lambda jar: not Path(jar).name.startswith("slf4j-api")))


def environment(options: SparkOptions, java: Java) -> dict[str, str]:
    """Return the variables of a JVM: this Python for its workers, this Java, the loopback where Spark is local."""
    from noetl.spark.session.session import is_loopback

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    kept |= {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": options.conf.get("spark.pyspark.python", sys.executable),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONNECT_MODE": "0",
        "TZ": "UTC",
    }
    return kept | ({"SPARK_LOCAL_IP": "127.0.0.1"} if is_loopback(options.master) else {})


class Jvm:
    """A running JVM with its gateway; `connect` gives the session in it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, secret: str, variables: dict[str, str]) -> None:
        self.process = process
        self._port = port
        self._secret = secret
        self._variables = variables

    def connect(self) -> SparkSession:
        """Open the one session context of this process on the JVM."""
        os.environ |= {key: value for key, value in self._variables.items() if key.startswith(("SPARK_", "PYSPARK_"))}
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self._port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self._secret
        from pyspark.sql import SparkSession

        try:
            return SparkSession.builder.getOrCreate()
        finally:
            # The JVM's key to this process is nobody else's: children of the job's own making must not inherit it.
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]

    def close(self, seconds: float = 10.0) -> None:
        """Ask the JVM to end and wait for it; kill it when it does not."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the JVM at once."""
        self.process.kill()
        self.process.wait()


def start_jvm(options: SparkOptions, java: Java, scratch: Path, more: tuple[str, ...] = ()) -> Jvm:
    """Start a JVM with its settings and wait for its gateway; must be called from a thread that lives as long as it."""
    from noetl.spark.session.session import configuration

    said = scratch / "spark.log"
    with tempfile.TemporaryDirectory(prefix="start-", dir=scratch) as private:
        # A file that only this user may read, since settings may hold credentials and command lines are public.
        properties, information = Path(private, "spark.properties"), Path(private, "gateway")
        properties.touch(0o600)
        properties.write_text(_properties(configuration(options, scratch)), encoding="utf-8")
        variables = environment(options, java)
        with said.open("ab") as output:
            process = subprocess.Popen(
                [*_command(options, java, scratch, more), "--properties-file", str(properties), "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=variables | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(information)},
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        try:
            port, secret = _gateway(process, information, said, options.start_seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
    return Jvm(process, port, secret, variables)


def _command(options: SparkOptions, java: Java, scratch: Path, more: tuple[str, ...]) -> list[str]:
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    return [
        str(java.program),
        "-cp",
        os.pathsep.join(class_path()),
        f"-Xmx{options.memory}",
        "-XX:-UsePerfData",
        *more,
        *MODULE_OPTIONS,
        f"-Djava.io.tmpdir={temporary}",
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        f"-Dnoetl.log={scratch / 'spark.log'}",
        *options.conf.get("spark.driver.extraJavaOptions", "").split(),
        "org.apache.spark.deploy.SparkSubmit",
    ]


def _properties(settings: dict[str, str]) -> str:
    """Write Java properties: backslashes doubled, line ends escaped."""
    lines = []
    for key, value in settings.items():
        text = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={text}")
    return "\n".join(lines) + "\n"


def _gateway(process: subprocess.Popen[bytes], information: Path, said: Path, seconds: float) -> tuple[int, str]:
    deadline = time.monotonic() + seconds
    while not information.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            why = f"ended with {process.returncode}" if process.returncode is not None else f"took over {seconds:g} s"
            tail = said.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
            raise Unavailable(f"the JVM of Spark did not start: it {why}: {tail or 'it said nothing'}")
        time.sleep(_POLL_SECONDS)
    data = information.read_bytes()
    port, size = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + size].decode()


def die_with_parent() -> None:
    """Let the kernel kill the calling process when the thread that made it is gone; Linux only."""
    assert _prctl is not None
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
