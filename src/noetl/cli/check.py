"""`noetl check`: reads playbooks and tells what is wrong with them, where, and how to mend it."""

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
    """Check playbooks without running them; exit 1 if one has errors.

    Fields, types, steps, labels, templates and the names in them are looked at. Warnings are shown but do not fail.

    \b
    Examples:
      noetl check playbook.yaml
      noetl check --strict playbooks/*.yaml
      noetl check --json playbook.yaml | jq '.problems[].code'
    """
    from noetl.playbook.check import problems_of

    texts = [(str(file), _read(file)) for file in files]
    problems = [problem for name, text in texts for problem in problems_of(text, file=name, strict=strict)]
    errors = sum(problem.severity == "error" for problem in problems)
    if as_json:
        _print_json(problems, len(files), errors)
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(
            f"{_count(len(files), 'playbook')}: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}"
        )
    ctx.exit(1 if errors else 0)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", hint="name a playbook that exists") from None
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
