"""`noetl check` and `noetl schema` know DAGs."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from noetl.cli.check import check
from noetl.cli.schema import schema
from noetl.language.dag.starter import starter_files


def test_a_dag_is_checked_with_the_files_beside_it(tmp_path: Path) -> None:
    for name, text in starter_files("shop").items():
        (tmp_path / name).write_text(text)
    answer = CliRunner().invoke(check, [str(tmp_path / "dag.yaml")])
    assert (answer.exit_code, answer.output) == (0, "1 DAG: 0 errors, 0 warnings\n")
    (tmp_path / "orders.py").write_text("def make_order(spark): pass\n")
    answer = CliRunner().invoke(check, [str(tmp_path / "dag.yaml")])
    assert answer.exit_code == 1
    assert "dag.yaml:12:15: error unknown_function: orders.py has no function make_orders" in answer.output


def test_dags_and_playbooks_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "dag.yaml").write_text("name: x\njobs: [{name: a, sql: SELECT 1 AS a}]\n")
    book = Path(__file__).parents[3] / "playbooks" / "good" / "pages.yaml"
    answer = CliRunner().invoke(check, [str(tmp_path / "dag.yaml"), str(book)])
    assert answer.output == "1 playbook, 1 DAG: 0 errors, 0 warnings\n"


def test_problems_of_a_dag_have_the_same_form_in_json(tmp_path: Path) -> None:
    (tmp_path / "dag.yaml").write_text("name: x\njobs: [{name: a, sql: SELEC}]\n")
    shown = json.loads(CliRunner().invoke(check, ["--json", str(tmp_path / "dag.yaml")]).output)
    assert (shown["files"], shown["errors"], shown["problems"][0]["code"]) == (1, 1, "sql_invalid")


def test_the_schema_of_dags_is_printed() -> None:
    answer = CliRunner().invoke(schema, ["dag"])
    assert json.loads(answer.output)["title"] == "NoETL DAG"
