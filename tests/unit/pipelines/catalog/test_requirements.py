"""Packages that jobs declare: wrong lines are refused, what is not here is told, what is here is packed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from noetl.cli.check import check
from noetl.cli.dags.spark import spark
from noetl.errors import InputError
from noetl.language.dag.requirements import declared, missing
from noetl.pipelines.catalog.dags.bundles import read_bundle
from noetl.spark.pack import needed

DAG = """
name: shop
jobs:
  - name: orders
    function: orders:load
    config:
      requirements: {requirements}
"""


def _written(home: Path, requirements: str) -> Path:
    (home / "orders.py").write_text("def load(spark): return spark.range(1)")
    file = home / "dag.yaml"
    file.write_text(DAG.format(requirements=requirements))
    return file


def test_what_is_not_here_is_told_with_what_is() -> None:
    told = ["msgspec", "msgspec>=999", "no-such-thing[extra]==1.2", "other; python_version < '3'"]
    found = missing(declared({"requirements": told}, lambda _: None))
    assert found[0].startswith("msgspec>=999 (")
    assert found[1:] == ["no-such-thing==1.2"]


def test_a_line_that_names_no_package_is_refused_where_it_is_declared(tmp_path: Path) -> None:
    file = _written(tmp_path, "[msgspec, 'not a package!']")
    with pytest.raises(InputError) as refused:
        read_bundle(file)
    assert "dag.yaml:7:7: error requirement_invalid: orders: 'not a package!' names no package" in str(refused.value)
    assert CliRunner().invoke(check, [str(file)]).exit_code == 1


def test_check_and_deploy_warn_of_packages_that_are_not_here(tmp_path: Path) -> None:
    file = _written(tmp_path, "[msgspec, no-such-thing]")
    answer = CliRunner().invoke(check, [str(file)])
    assert (answer.exit_code, "orders needs no-such-thing, which is not here" in answer.output) == (0, True)
    assert [warning.code for warning in read_bundle(file).warnings] == ["requirement_missing"]


def test_what_a_dag_declares_is_packed_for_executors(tmp_path: Path) -> None:
    (tmp_path / "needs.txt").write_text("iniconfig>=1\n")
    file = _written(tmp_path, "needs.txt")
    without = [part for name in needed(("noetl",)) for part in ("--without", name)]
    target = tmp_path / "pack.tar.gz"
    answer = CliRunner().invoke(spark, ["pack", str(target), "--for", str(file), "--json", *without])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output)["distributions"] == ["iniconfig"]


def test_a_module_with_a_name_of_pythons_own_is_refused(tmp_path: Path) -> None:
    file = _written(tmp_path, "[]")
    (tmp_path / "orders.py").rename(tmp_path / "numbers.py")
    file.write_text(file.read_text().replace("orders:load", "numbers:load"))
    with pytest.raises(InputError, match=r"numbers\.py has the name of a module of Python itself"):
        read_bundle(file)
