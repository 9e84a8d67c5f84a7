"""`noetl schema`: print the schemas of playbooks, DAGs and views; show the event types, export their schemas and compare a copy."""

from __future__ import annotations

import json
from pathlib import Path

import click

from noetl.errors import InputError

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.group()
def schema() -> None:
    """Print the schemas of playbooks, DAGs, views and events."""


@schema.command()
def playbook() -> None:
    """Print the JSON Schema of playbooks, for editors and other tools.

    \b
    Examples:
      noetl schema playbook > playbook.schema.json
    """
    from noetl.engine.tools.registry import known_kinds
    from noetl.language.playbook.kinds.registry import KINDS
    from noetl.language.playbook.schema import playbook_schema

    further = sorted(known_kinds() - set(KINDS))
    click.echo(json.dumps(playbook_schema(further), indent=2, ensure_ascii=False))


@schema.command()
def dag() -> None:
    """Print the JSON Schema of DAGs, for editors and other tools.

    \b
    Examples:
      noetl schema dag > dag.schema.json
    """
    from noetl.language.dag.grammar import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@schema.command()
def view() -> None:
    """Print the JSON Schema of views, for editors and other tools.

    \b
    Examples:
      noetl schema view > view.schema.json
    """
    from noetl.language.view.document import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@schema.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print the reference page.")
def events(as_json: bool, markdown: bool) -> None:
    """List every event type with what it says and must carry.

    \b
    Examples:
      noetl schema events
      noetl schema events --json | jq '.[] | select(.ends) | .type'
    """
    from noetl.model.catalogue import EVENT_TYPES
    from noetl.model.registry import render_events, required_fields

    if markdown:
        click.echo(render_events(), nl=False)
        return
    if as_json:
        shown = [
            {
                "type": kind.name,
                "version": kind.version,
                "sentence": kind.sentence,
                "aggregate": kind.aggregate,
                "needs": required_fields(kind),
                "ends": kind.ends_execution,
                "once_per": kind.once_per,
                "retried": kind.retried,
            }
            for kind in EVENT_TYPES
        ]
        click.echo(json.dumps(shown, indent=2))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [(kind.name, str(kind.version), kind.sentence, ", ".join(required_fields(kind))) for kind in EVENT_TYPES]
    click.echo(rendered(("type", "version", "what it says", "must carry"), rows), nl=False)


@schema.command()
@click.argument("event_type", metavar="TYPE")
def show(event_type: str) -> None:
    """Print the JSON Schema of one event type.

    \b
    Examples:
      noetl schema show frame.committed
      noetl schema show frame.committed > frame.committed.json
    """
    from difflib import get_close_matches

    from noetl.model.catalogue import BY_NAME
    from noetl.model.catalogue import event_type as find

    kind = find(event_type)
    if kind is None:
        near = get_close_matches(event_type, BY_NAME, n=1)
        raise InputError(
            f"there is no event type {event_type!r}",
            hint=f"did you mean {near[0]}?" if near else "`noetl schema events` lists them",
        )
    click.echo(json.dumps(kind.json_schema(), indent=2, sort_keys=True, ensure_ascii=False))


@schema.command()
@click.argument("directory", type=_DIRECTORY)
@click.option("--replace", is_flag=True, help="Also replace schemas that changed under the same version.")
def export(directory: Path, replace: bool) -> None:
    """Write the schemas of all event types to DIRECTORY, one file per type and version, with an index.

    Schemas of earlier versions that stand there are kept. One that changed under the same version is refused, since
    events of that version exist; --replace is for versions that were never released.

    \b
    Examples:
      noetl schema export schemas
    """
    from noetl.model.registry import check as drifts
    from noetl.model.registry import registry_files

    stored = _stored(directory)
    changed = [drift for drift in drifts(stored) if drift.kind == "changed"]
    if changed and not replace:
        raise InputError(
            "; ".join(f"{drift.path} {drift.problem}" for drift in changed),
            hint="use --replace if no event of that version was ever recorded",
        )
    files = registry_files(stored)
    written = [path for path, text in files.items() if stored.get(path) != text]
    for path in written:
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(files[path])
    click.echo(f"{len(files) - 1} schemas in {directory}, {len(written)} files written.")


@schema.command()
@click.argument("directory", type=_DIRECTORY)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(directory: Path, as_json: bool) -> None:
    """Compare the schemas in DIRECTORY with this version of NoETL; exit 1 if they differ.

    \b
    Examples:
      noetl schema check schemas
    """
    from noetl.model.registry import check as drifts

    if not directory.is_dir():
        raise InputError(f"{directory} is not a directory", hint="`noetl schema export` makes one")
    found = drifts(_stored(directory))
    if as_json:
        shown = [{"path": drift.path, "kind": drift.kind, "problem": drift.problem} for drift in found]
        click.echo(json.dumps(shown, indent=2))
    else:
        for drift in found:
            click.echo(f"{drift.path} {drift.problem}", err=True)
        click.echo(f"{len(found)} differences." if found else f"The schemas in {directory} are current.")
    if found:
        raise SystemExit(1)


def _stored(directory: Path) -> dict[str, str]:
    return {path.relative_to(directory).as_posix(): path.read_text() for path in sorted(directory.rglob("*.json"))}
