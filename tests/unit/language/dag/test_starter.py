"""A new project passes every check as it is."""

from __future__ import annotations

import ast

from noetl.language.dag.parse import parse
from noetl.language.dag.starter import starter_files


def test_the_starter_parses_without_a_warning() -> None:
    files = {name: text.encode() for name, text in starter_files("shop").items()}
    parsed = parse(files["dag.yaml"].decode(), file="dag.yaml", files=files)
    assert parsed.warnings == []
    assert parsed.dag.name == "shop"
    assert [job.name for job in parsed.dag.jobs] == ["orders", "clean_orders", "sales_by_region"]
    assert list(parsed.dag.publish) == ["sales_by_region"]
    assert parsed.dag.job("sales_by_region").checks
    assert parsed.job_files["orders"] == ("orders.py",)


def test_its_python_is_valid_and_its_readme_names_every_file() -> None:
    files = starter_files("shop")
    ast.parse(files["orders.py"])
    assert all(f"`{name}`" in files["README.md"] for name in files if name != "README.md")
