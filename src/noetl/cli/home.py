"""`noetl home`: which home, settings file and database the commands run in this directory use."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def home(as_json: bool) -> None:
    """Show which home, settings and database the commands run here use.

    The home is the directory of the embedded database, local payloads and keys. It is `.noetl` of the project: of the nearest
    directory, from the working directory upwards, that has `.noetl` or `noetl.yaml`. NOETL_HOME or the setting `runtime.home`
    names another one. Nothing is made by looking.

    \b
    Examples:
      noetl home
      noetl home --json
    """
    from noetl.runtime.home import home_facts

    facts = home_facts()
    if as_json:
        shown = {
            "home": str(facts.home),
            "because": facts.because,
            "exists": facts.exists,
            "settings_file": None if facts.settings_file is None else str(facts.settings_file),
            "database": facts.database,
            "token_file": None if facts.token_file is None else str(facts.token_file),
            "passed_over": [str(path) for path in facts.passed_over],
        }
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    click.echo(f"home       {facts.home}{'' if facts.exists else ', not made yet'}")
    click.echo(f"because    {facts.because}")
    click.echo(f"settings   {facts.settings_file or 'defaults and environment'}")
    click.echo(f"database   {facts.database}")
    if facts.token_file is not None:
        click.echo(f"token      {facts.token_file}, for a server that has no other")
    for path in facts.passed_over:
        click.echo(f"passed over {path}: it belongs to another user", err=True)
