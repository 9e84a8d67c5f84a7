"""Every file of the corpus says in its first line what is to be told about it, and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.language.grammar.problems import Problem
from noetl.language.playbook.checks.all_checks import problems_of
from noetl.language.playbook.kinds.registry import KINDS, NOT_RUNNABLE

CORPUS = Path(__file__).parents[3] / "playbooks"


def files(folder: str) -> list[object]:
    return [pytest.param(file, id=file.stem) for file in sorted((CORPUS / folder).glob("*.yaml"))]


def expected(file: Path) -> list[str]:
    listed = file.read_text().split("\n", 1)[0].removeprefix("# expect:").strip()
    return listed.split(", ") if listed else []


def told(problems: list[Problem]) -> list[str]:
    return [f"{problem.line}:{problem.column} {problem.code}" for problem in problems]


@pytest.mark.parametrize("file", files("good"))
def test_a_canonical_playbook_has_no_problems_at_all(file: Path) -> None:
    assert problems_of(file.read_text(), strict=True) == []


@pytest.mark.parametrize("file", files("bad"))
def test_a_wrong_playbook_is_refused_at_its_place(file: Path) -> None:
    problems = problems_of(file.read_text(), file=file.name)
    assert told([problem for problem in problems if problem.severity == "error"]) == expected(file)
    assert all(problem.file == file.name for problem in problems)


@pytest.mark.parametrize("file", files("legacy"))
def test_an_old_spelling_is_read_with_a_warning(file: Path) -> None:
    problems = problems_of(file.read_text())
    assert told(problems) == expected(file)
    assert {problem.severity for problem in problems} == {"warning"}
    assert all(problem.suggestion for problem in problems)


@pytest.mark.parametrize("file", files("legacy"))
def test_an_old_spelling_is_refused_when_reading_strictly(file: Path) -> None:
    problems = problems_of(file.read_text(), strict=True)
    assert told(problems) == expected(file)
    assert {problem.severity for problem in problems} == {"error"}


@pytest.mark.parametrize("file", files("warned"))
def test_a_doubtful_playbook_is_accepted_with_a_warning(file: Path) -> None:
    problems = problems_of(file.read_text())
    assert told(problems) == expected(file)
    assert {problem.severity for problem in problems} == {"warning"}


@pytest.mark.parametrize("file", files("existing"))
def test_a_playbook_as_users_have_them_is_read_with_warnings_at_most(file: Path) -> None:
    problems = problems_of(file.read_text())
    assert told(problems) == expected(file)
    assert {problem.severity for problem in problems} <= {"warning"}
    assert all(problem.suggestion for problem in problems)


def test_the_corpus_uses_every_kind_of_task() -> None:
    written = "".join(file.read_text() for file in (CORPUS / "good").glob("*.yaml"))
    assert [kind for kind in KINDS if f"kind: {kind}" not in written] == []


@pytest.mark.parametrize("kind", sorted(NOT_RUNNABLE))
def test_a_kind_that_is_not_of_this_build_is_refused_with_what_to_write(kind: str) -> None:
    text = (CORPUS / "bad" / "kind_rhai.yaml").read_text().replace("kind: rhai", f"kind: {kind}")
    found = [problem for problem in problems_of(text) if problem.code == "kind_not_supported"]
    assert [problem.suggestion for problem in found] == [NOT_RUNNABLE[kind]]


def test_a_document_that_is_no_playbook_is_told_what_stands_for_it() -> None:
    found = problems_of((CORPUS / "bad" / "kind_of_file_subscription.yaml").read_text())
    assert "kind subscription" in str(found[0].suggestion)
