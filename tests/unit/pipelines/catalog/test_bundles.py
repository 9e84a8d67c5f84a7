"""A bundle is the same for the same files, holds only what jobs need, and tells exactly which jobs a change is about."""

from __future__ import annotations

import io
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InputError
from noetl.language.dag.parse import DagInvalid
from noetl.pipelines.catalog.dags import bundles
from noetl.pipelines.catalog.dags.bundles import Bundle, config_with_sql, job_hash, open_bundle, read_bundle, unpack

DAG = """name: shop
jobs:
  - {name: orders, function: "jobs.orders:make"}
  - {name: clean, inputs: [orders], file: sql/clean.sql}
  - {name: score, inputs: [clean], function: "scoring:score", config: {requirements: needs.txt}}
  - {name: total, inputs: [score], sql: SELECT count(*) AS n FROM score}
  - {name: pages, playbook: pages.yaml}
publish: [total]
"""
FILES = {
    "dag.yaml": DAG,
    "jobs/__init__.py": "",
    "jobs/orders.py": "from jobs.shared import SIZE\ndef make(spark): pass\n",
    "jobs/shared.py": "SIZE = 1\n",
    "scoring.py": "import numpy\nimport jobs.shared\ndef score(clean): pass\n",
    "sql/clean.sql": "SELECT id FROM orders",
    "needs.txt": "numpy>=2\n",
    "pages.yaml": "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\nworkflow: [{step: a, tool: {kind: noop}}]\n",
    "notes.md": "not part of it",
    "unused.py": "raise SystemExit\n",
}


def project(root: Path, **changed: str) -> Path:
    """Write the project with some files changed, by name without its end; return the DAG's path."""
    for name, text in FILES.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(changed.get(Path(name).stem, text))
    return root / "dag.yaml"


def hashes(bundle: Bundle) -> dict[str, str]:
    """Return the hash of each job."""
    return {job.name: job_hash(bundle, job) for job in bundle.dag.jobs}


def changed_jobs(one: Bundle, other: Bundle) -> set[str]:
    """Return the jobs whose hash differs."""
    before, after = hashes(one), hashes(other)
    return {name for name in before if before[name] != after[name]}


def test_a_bundle_holds_what_jobs_need_and_nothing_else(tmp_path: Path) -> None:
    found = read_bundle(project(tmp_path))
    assert set(found.files) == set(FILES) - {"notes.md", "unused.py"}
    assert found.job_files == {
        "orders": ("jobs/__init__.py", "jobs/orders.py", "jobs/shared.py"),
        "clean": ("sql/clean.sql",),
        "score": ("jobs/__init__.py", "jobs/shared.py", "needs.txt", "scoring.py"),
        "total": (),
        "pages": ("pages.yaml",),
    }
    assert found.warnings == ()


def test_the_same_files_make_the_same_bundle_wherever_and_whenever(tmp_path: Path) -> None:
    """INV-54."""
    one = read_bundle(project(tmp_path / "a"))
    other = project(tmp_path / "b")
    for path in (tmp_path / "b").rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert read_bundle(other.rename(other.with_name("pipeline.yaml"))).data == one.data


def test_the_digests_are_pinned(tmp_path: Path) -> None:
    found = read_bundle(project(tmp_path))
    assert (found.digest[:12], found.code_digest[:12], found.yaml_hash[:12]) == (
        "96a7a87a039c", "c2ad4a1079f8", "36d3c73071d0",
    )  # fmt: skip
    assert hashes(found)["total"].startswith("54a741df65dc")


def test_a_stored_bundle_opens_as_what_it_was(tmp_path: Path) -> None:
    found = read_bundle(project(tmp_path))
    again = open_bundle(found.data)
    assert (again.dag, again.digest, again.code_digest, again.yaml_hash) == (
        found.dag, found.digest, found.code_digest, found.yaml_hash,
    )  # fmt: skip
    assert (again.files, again.job_files, hashes(again)) == (found.files, found.job_files, hashes(found))


def test_a_stored_bundle_opens_where_its_operator_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "dag.yaml"
    path.write_text("name: x\njobs: [{name: a, operator: fax, runtime: dispatcher}]\n")
    with pytest.raises(DagInvalid, match="unknown_operator"):
        read_bundle(path)
    assert open_bundle(read_bundle(path, operators=["fax"]).data).dag.jobs[0].operator == "fax"


@pytest.mark.parametrize(
    ("stem", "text", "jobs"),
    [
        ("shared", "SIZE = 2\n", {"orders", "score"}),
        ("orders", FILES["jobs/orders.py"] + "# more\n", {"orders"}),
        ("scoring", FILES["scoring.py"] + "# more\n", {"score"}),
        ("clean", "SELECT id + 1 AS id FROM orders", {"clean"}),
        ("needs", "numpy>=3\n", {"score"}),
        ("pages", FILES["pages.yaml"] + "# more\n", {"pages"}),
        ("unused", "", set()),
        ("dag", DAG.replace("count(*)", "max(1)"), {"total"}),
        ("dag", DAG.replace("publish: [total]", "publish: [clean]"), set()),
        ("dag", "# said\n" + DAG, set()),
        ("dag", DAG.replace("jobs:\n", "defaults: {max_attempts: 9, timeout_seconds: 5, spark: {spark.a: b}}\njobs:\n"), set()),
        ("dag", DAG.replace("inputs: [score]", "inputs: [score], idle_timeout: 5m, scaling: {max_concurrency: 2}"), set()),
        ("dag", DAG.replace("inputs: [score]", "inputs: [{from: score, where: {a: 1}}]"), {"total"}),
        ("dag", DAG.replace("inputs: [score]", "inputs: [score], secrets: [token]"), {"total"}),
        ("dag", DAG.replace("inputs: [score]", "inputs: [score], checks: [{kind: row_count, min: 1}]"), {"total"}),
        ("dag", DAG.replace("inputs: [score]", "inputs: [score], partition_by: n"), {"total"}),
        ("dag", DAG.replace("inputs: [score]", "inputs: [{from: {job: score, output: 0}}]"), set()),
        ("dag", DAG.replace('"jobs.orders:make"}', '"jobs.orders:make", source: {kind: cron, schedule: rate(1 day)}}'), set()),
    ],
)  # fmt: skip
def test_a_change_is_about_exactly_the_jobs_that_use_it(stem: str, text: str, jobs: set[str], tmp_path: Path) -> None:
    """INV-54."""
    before = read_bundle(project(tmp_path / "a"))
    after = read_bundle(project(tmp_path / "b", **{stem: text}))
    assert changed_jobs(before, after) == jobs


def test_the_code_digest_is_about_python_and_dependencies_alone(tmp_path: Path) -> None:
    before = read_bundle(project(tmp_path / "a")).code_digest
    assert (
        read_bundle(project(tmp_path / "b", clean="SELECT 1 AS id FROM orders", dag="# x\n" + DAG)).code_digest
        == before
    )
    assert read_bundle(project(tmp_path / "c", shared="SIZE = 2\n")).code_digest != before
    assert read_bundle(project(tmp_path / "d", needs="numpy>=3\n")).code_digest != before
    (tmp_path / "e.yaml").write_text("name: x\njobs: [{name: a, sql: SELECT 1 AS a}]\n")
    assert read_bundle(tmp_path / "e.yaml").code_digest == ""
    (tmp_path / "f.yaml").write_text("name: x\njobs: [{name: a, sql: SELECT 1 AS a, config: {requirements: [b]}}]\n")
    assert read_bundle(tmp_path / "f.yaml").code_digest != ""


def test_a_shorthand_and_what_it_stands_for_are_the_same_job(tmp_path: Path) -> None:
    short = {
        "name": "x",
        "jobs": [{"name": "a", "sql": "SELECT 1 AS i"}, {"name": "b", "inputs": ["a"], "sql": "SELECT i FROM a"}],
    }
    long = {"name": "x", "jobs": [
        {"name": "a", "operator": "spark_sql", "runtime": "spark", "activation": "source", "config": {"sql": "SELECT 1 AS i"}, "outputs": 1},
        {"name": "b", "operator": "spark_sql", "inputs": [{"from": {"job": "a", "output": 0}, "alias": "a", "trigger": True}],
         "execution_strategy": "PerPartition", "update_strategy": "replace", "wait": "any", "config": {"sql": "SELECT i FROM a"}},
    ]}  # fmt: skip
    found = []
    for name, document in (("short.yaml", short), ("long.yaml", long)):
        (tmp_path / name).write_text(json.dumps(document))
        found.append(hashes(read_bundle(tmp_path / name)))
    assert found[0] == found[1]


@settings(max_examples=30)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 3), max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_order_of_keys_changes_no_hash(config: dict[str, Any], order: random.Random) -> None:
    def opened(fields: dict[str, Any]) -> Bundle:
        pairs = [("name", "a"), ("sql", "SELECT 1 AS i"), ("config", {f"my_{key}": one for key, one in fields.items()})]
        order.shuffle(pairs)
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("dag.yaml", json.dumps({"name": "x", "jobs": [dict(pairs)]}))
        return open_bundle(target.getvalue())

    assert hashes(opened(config)) == hashes(opened(dict(reversed(config.items()))))


def test_the_sql_of_a_file_is_put_in(tmp_path: Path) -> None:
    found = read_bundle(project(tmp_path))
    told = config_with_sql(found.dag.job("clean").config, found.data)
    assert told == {"file": "sql/clean.sql", "sql": "SELECT id FROM orders"}
    assert config_with_sql({"sql": "SELECT 1"}, found.data) == {"sql": "SELECT 1"}


def test_files_outside_the_directory_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / "secret.sql").write_text("SELECT 1 AS a")
    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "link.sql").symlink_to(tmp_path / "secret.sql")
    (inside / "dag.yaml").write_text("name: x\njobs: [{name: a, file: link.sql}]\n")
    with pytest.raises(DagInvalid, match=r"unknown_file: there is no file link\.sql"):
        read_bundle(inside / "dag.yaml")


def test_unpacking_writes_the_files_below_the_directory(tmp_path: Path) -> None:
    found = read_bundle(project(tmp_path / "a"))
    unpack(found.data, tmp_path / "out" / "there")
    written = {path.relative_to(tmp_path / "out" / "there").as_posix(): path.read_bytes()
               for path in (tmp_path / "out" / "there").rglob("*") if path.is_file()}  # fmt: skip
    assert written == found.files


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py", "a\\x.py", "C:x.py", "a//x.py", "./x.py", "a/"])
def test_a_bundle_with_an_unsafe_name_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("dag.yaml", DAG)
        archive.writestr(zipfile.ZipInfo(name), b"")
    with pytest.raises(InputError, match="no file below a directory"):
        unpack(target.getvalue(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_bytes_that_are_no_bundle_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be opened"):
        open_bundle(b"PK nothing")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("x.py", b"")
    with pytest.raises(InputError, match=r"no dag\.yaml"):
        open_bundle(target.getvalue())


def test_too_many_or_too_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project(tmp_path)
    data = read_bundle(path).data
    monkeypatch.setattr(bundles, "MAX_FILES", 7)
    for attempt in (lambda: read_bundle(path), lambda: open_bundle(data), lambda: unpack(data, tmp_path / "out")):
        with pytest.raises(InputError, match="at most 7 files"):
            attempt()
    monkeypatch.setattr(bundles, "MAX_FILES", 1000)
    monkeypatch.setattr(bundles, "MAX_BYTES", 100)
    for attempt in (lambda: read_bundle(path), lambda: open_bundle(data)):
        with pytest.raises(InputError, match="at most 1000 files"):
            attempt()


def test_a_dag_that_cannot_be_read_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_bundle(tmp_path / "nothing.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="byte 0"):
        read_bundle(tmp_path / "x.yaml")


def test_a_file_called_as_the_dag_is_in_a_bundle_must_be_renamed(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("name: x\njobs: [{name: a, playbook: dag.yaml}]\n")
    (tmp_path / "dag.yaml").write_text(FILES["pages.yaml"])
    with pytest.raises(InputError, match=r"the file dag\.yaml cannot be part of the bundle"):
        read_bundle(tmp_path / "pipeline.yaml")
