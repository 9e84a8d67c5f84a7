"""`noetl check`: reads playbooks, DAGs, views and alerts and tells what is wrong with them, where, and how to mend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from noetl.language.grammar.problems import Problem


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--strict", is_flag=True, help="Count old spellings as errors.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Check playbooks, DAGs, views and files of alerts without running them; exit 1 if one has errors or cannot be read.

    Fields, types, steps, labels, templates and the names in them are looked at. For a DAG, which has jobs, so are the
    SQL, Python and playbooks beside it, and for a view its SELECT or its code. Warnings are shown but do not fail.

    \b
    Examples:
      noetl check playbook.yaml
      noetl check dag.yaml
      noetl check views/*.yaml alerts.yaml
      noetl check --strict playbooks/*.yaml
      noetl check --json playbook.yaml | jq '.problems[].code'
    """
    from noetl.engine.tools.registry import known_kinds
    from noetl.language.alert.document import is_alerts
    from noetl.language.dag.parse import is_dag
    from noetl.language.playbook.checks.all_checks import problems_of
    from noetl.language.view.document import is_view

    problems: list[Problem] = []
    counts = {"playbook": 0, "DAG": 0, "view": 0, "alert file": 0, "unreadable file": 0}
    for file in files:
        text, found = _read(file)
        if found:
            kind = "unreadable file"
        elif is_view(text):
            kind, found = "view", _view_problems(file, text)
        elif is_alerts(text):
            kind, found = "alert file", _alerts_problems(file, text)
        elif is_dag(text):
            kind, found = "DAG", _dag_problems(file, text)
        else:
            kind, found = "playbook", problems_of(text, file=str(file), kinds=known_kinds(), strict=strict)
        counts[kind] += 1
        problems += found
    errors = sum(problem.severity == "error" for problem in problems)
    if as_json:
        _print_json(problems, len(files), errors)
    else:
        for problem in problems:
            click.echo(str(problem))
        what = ", ".join(_count(number, noun) for noun, number in counts.items() if number)
        click.echo(f"{what}: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
    ctx.exit(1 if errors else 0)


def _dag_problems(file: Path, text: str) -> list[Problem]:
    from noetl.language.dag.parse import DagInvalid, parse, problems_of
    from noetl.language.dag.requirements import requirement_problems
    from noetl.pipelines.catalog.dags.bundles import files_beside, installed_operators

    beside, known = files_beside(file), installed_operators()
    try:
        parsed = parse(text, file=str(file), files=beside, operators=known)
    except DagInvalid:
        return problems_of(text, file=str(file), files=beside, operators=known)
    return [*parsed.warnings, *requirement_problems(parsed, beside)]


def _view_problems(file: Path, text: str) -> list[Problem]:
    from noetl.language.view.document import problems_of
    from noetl.pipelines.catalog.dags.bundles import files_beside

    return problems_of(text, file=str(file), files=files_beside(file))


def _alerts_problems(file: Path, text: str) -> list[Problem]:
    from noetl.language.alert.document import problems_of

    return problems_of(text, file=str(file))


def _read(file: Path) -> tuple[str, list[Problem]]:
    """Return the text of a file, or why there is none."""
    from noetl.language.grammar.problems import Problems
    from noetl.language.playbook.model import NOWHERE

    problems = Problems(str(file))
    try:
        return file.read_text(encoding="utf-8"), []
    except OSError as error:
        said = f"the file cannot be read: {error.strerror}"
        fix = "name the files in it" if file.is_dir() else "name a file that exists"
        problems.error("file_unreadable", said, NOWHERE, fix)
    except UnicodeDecodeError as error:
        said = f"the file is not UTF-8 text: byte {error.start} cannot be decoded"
        problems.error("file_unreadable", said, NOWHERE, "save it as UTF-8")
    return "", problems.found


def _print_json(problems: list[Problem], files: int, errors: int) -> None:
    import msgspec

    shown = {
        "files": files,
        "errors": errors,
        "warnings": len(problems) - errors,
        "problems": msgspec.to_builtins(problems),
    }
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
