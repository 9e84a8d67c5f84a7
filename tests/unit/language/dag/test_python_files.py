"""Python is read and never run: what a job's module imports from beside the DAG, and what its function takes."""

from __future__ import annotations

import pytest
from tests.unit.language.dag.writing import codes, dag, said_of

from noetl.language.dag.parse import problems_of
from noetl.language.dag.python_files import PythonFiles

PROJECT = {
    "jobs/__init__.py": b"",
    "jobs/clean.py": b"import pandas\nfrom . import names\nfrom .deep.er import thing\nfrom ..outside import x\nimport shared",
    "jobs/names.py": b"raise SystemExit",
    "jobs/deep/er.py": b"import jobs.lazy as lazy",
    "jobs/lazy.py": b"def f():\n    import importlib\n    return importlib.import_module('late.one'), __import__(name)",
    "late/one.py": b"",
    "shared.py": b"from jobs import *\nimport shared",
    "outside.py": b"",
    "unused.py": b"import shared",
}


def test_the_closure_follows_imports_within_the_directory_only() -> None:
    found = PythonFiles(PROJECT.get).closure(["jobs/clean.py"])
    assert found == (
        "jobs/__init__.py",
        "jobs/clean.py",
        "jobs/deep/er.py",
        "jobs/lazy.py",
        "jobs/names.py",
        "late/one.py",
        "outside.py",
        "shared.py",
    )


def test_a_package_goes_before_a_module_of_the_same_name() -> None:
    files = {"a.py": b"", "a/__init__.py": b""}
    assert PythonFiles(files.get).module_file("a") == "a/__init__.py"


def test_names_that_are_no_modules_are_not_looked_for() -> None:
    asked: list[str] = []

    def files(name: str) -> bytes | None:
        asked.append(name)
        return b"__import__('../../etc/x'); __import__('/etc/x')" if name == "a.py" else None

    assert PythonFiles(files).closure(["a.py"]) == ("a.py",)
    assert not [name for name in asked if "etc" in name]


def test_a_file_that_is_no_python_is_told_under_its_own_name() -> None:
    text = dag({"name": "it", "function": "a:f"})
    found = problems_of(text, file="x/dag.yaml", files={"a.py": b"import b\ndef f(): pass", "b.py": b"x = (\n"})
    assert [(one.file, one.line, one.code) for one in found] == [("x/b.py", 1, "python_invalid")]
    assert codes(text, files={"a.py": b"\x00"}) == ["python_invalid"]


def test_a_strange_escape_in_user_code_is_no_concern_of_ours() -> None:
    assert codes(dag({"name": "it", "function": "a:f"}), files={"a.py": b"def f():\n    return '\\d'"}) == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(up): pass", []),
        ("def f(*, up, spark, context=None): pass", []),
        ("def f(**inputs): pass", []),
        ("def f(up, extra=1): pass", []),
        ("@wrapped\ndef f(a, b): pass", []),
        ("from elsewhere import f", []),
        ("f = make()", []),
        ("try:\n    from fast import f\nexcept ImportError:\n    def f(up): pass", []),
        ("from elsewhere import *", []),
        ("class f: pass", []),
        ("def g(up): pass", ["unknown_function: a.py has no function f"]),
        ("def f(): pass", ["unread_input: f does not take up, which is an input of it"]),
        ("def f(up, ups): pass", ["unknown_input: f takes ups, which is no input of it"]),
    ],
)
def test_a_function_is_there_and_takes_its_inputs(code: str, said: list[str]) -> None:
    assert said_of({"a.py": code.encode()}, inputs=["up"], function="a:f") == said


def test_a_script_has_a_function_run() -> None:
    files = {"it.py": b"def run(spark): pass"}
    assert said_of(files, script="it.py") == []
    assert said_of({"it.py": b""}, script="it.py") == ["unknown_function: it.py has no function run"]
    assert said_of({}, script="it.py") == ["unknown_file: there is no file it.py"]


def test_a_module_that_is_not_there_may_come_with_a_package_that_is_declared() -> None:
    assert said_of({}, function="a.b:f") == ["unknown_file: there is no module a.b beside the DAG"]
    assert said_of({}, function="a.b:f", config={"requirements": ["a>=1"]}) == []
    assert said_of({}, function="a.b:f", config={"requirements": "r.txt"}) == ["unknown_file: there is no file r.txt"]


def test_the_playbook_of_a_job_is_checked_too() -> None:
    good = b"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\nworkflow: [{step: a, tool: {kind: fax}}]\n"
    assert codes(dag({"name": "it", "playbook": "p/x.yaml"}), files={"p/x.yaml": good}) == []
    found = problems_of(dag({"name": "it", "playbook": "p/x.yaml"}), file="d/dag.yaml", files={"p/x.yaml": b"a: 1\n"})
    assert {one.file for one in found} == {"d/p/x.yaml"}
    assert "unknown_field" in {one.code for one in found}
