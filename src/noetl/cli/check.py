"""`noetl check`: reads playbooks and DAGs and tells what is wrong with them, where, and how to mend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.errors import InputError

if TYPE_CHECKING:
    from noetl.playbook.problems import Problem


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--strict", is_flag=True, help="Count old spellings as errors.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Check playbooks and DAGs without running them; exit 1 if one has errors.

    Fields, types, steps, labels, templates and the names in them are looked at. For a DAG, which has jobs, so are the
    SQL, Python and playbooks beside it. Warnings are shown but do not fail.

    \b
    Examples:
      noetl check playbook.yaml
      noetl check dag.yaml
      noetl check --strict playbooks/*.yaml
      noetl check --json playbook.yaml | jq '.problems[].code'
    """
    from noetl.dag.parse import is_dag
    from noetl.playbook.check import problems_of

    texts = [(file, text, is_dag(text)) for file, text in [(file, _read(file)) for file in files]]
    problems = [
        problem
        for file, text, has_jobs in texts
        for problem in (_dag_problems(file, text) if has_jobs else problems_of(text, file=str(file), strict=strict))
    ]
    dags = sum(has_jobs for _, _, has_jobs in texts)
    errors = sum(problem.severity == "error" for problem in problems)
    if as_json:
        _print_json(problems, len(files), errors)
    else:
        for problem in problems:
            click.echo(str(problem))
        counted = ((len(files) - dags, "playbook"), (dags, "DAG"))
        what = ", ".join(_count(number, noun) for number, noun in counted if number)
        click.echo(f"{what}: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
    ctx.exit(1 if errors else 0)


def _dag_problems(file: Path, text: str) -> list[Problem]:
    from noetl.catalog.bundles import files_beside, installed_operators
    from noetl.dag.parse import problems_of

    return problems_of(text, file=str(file), files=files_beside(file), operators=installed_operators())


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", hint="name a file that exists") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text: byte {error.start} cannot be decoded") from None


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
