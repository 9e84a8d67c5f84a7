"""`noetl db`: start, stop, inspect, migrate and reset the database, embedded or external."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from noetl.errors import InputError

ROLES = ("runtime", "owner", "projector", "relay", "materializer", "retention")


@dataclass(frozen=True)
class Target:
    """The database the settings speak of: an external one if it has a URL, else the embedded one under home."""

    home: Path
    url: str | None
    owner_url: str | None

    def refuse_external(self, verb: str) -> None:
        """Refuse what is only done to the embedded server."""
        if self.url is not None:
            raise InputError(
                f"an external database is configured, which NoETL does not {verb}",
                hint="unset NOETL_DATABASE_URL (or database.url in noetl.yaml) to use the embedded one",
            )

    @contextmanager
    def as_owner(self) -> Iterator[str]:
        """The URL of the schema's owner, with the embedded server running for the length of the block."""
        from noetl.runtime.home import tell_new_home
        from noetl.runtime.postgres.embedded import EmbeddedServer

        if self.url is not None:
            yield self.owner_url or self.url
            return
        with EmbeddedServer(self.home, tell_new_home) as server:
            yield server.url()


def configured() -> Target:
    """Read from the settings which database is meant."""
    from noetl.runtime.config import load_settings

    settings = load_settings()
    url, owner_url = settings.database.url, settings.database.owner_url
    return Target(
        settings.runtime.home,
        None if url is None else url.get_secret_value(),
        None if owner_url is None else owner_url.get_secret_value(),
    )


def configured_store(name: str) -> Target:
    """Read from the settings which database a projection store is."""
    from noetl.runtime.config import load_settings

    settings = load_settings()
    named = {one: store.connection for one, store in settings.projection_stores.items() if store.connection.dsn}
    if name not in named:
        known = ", ".join(named) or "none"
        raise InputError(f"no projection store {name!r} has a database of its own; there is {known}")
    dsn, owner = named[name].dsn, named[name].owner_dsn
    assert dsn is not None
    return Target(settings.runtime.home, dsn.get_secret_value(), None if owner is None else owner.get_secret_value())


@click.group()
def db() -> None:
    """Start, stop, migrate and inspect the database.

    Without further settings NoETL runs its own PostgreSQL in .noetl/: it starts with the first command that needs it
    and stops with the last. NOETL_HOME names another directory than .noetl/, NOETL_DATABASE_URL another server.

    Under root the server runs as `nobody`. Where that account may not enter the project, the data stand in
    NOETL_STATE_DIR (/var/lib/noetl by default); `noetl db status` tells.
    """


@db.command()
def start() -> None:
    """Start the embedded server and keep it running.

    It then runs without users too, until `noetl db stop`.

    \b
    Examples:
      noetl db start
      NOETL_HOME=/srv/noetl noetl db start
    """
    from noetl.runtime.home import tell_new_home
    from noetl.runtime.postgres.embedded import EmbeddedServer

    target = configured()
    target.refuse_external("start")
    info = EmbeddedServer(target.home, tell_new_home).start()
    click.echo(f"PostgreSQL {info.version} runs on {info.host}:{info.port} with its data in {info.data_dir}")
    if info.moved_because:
        click.echo(f"The data stand there because {info.moved_because}.")


@db.command()
def stop() -> None:
    """Stop the embedded server, even while others use it.

    \b
    Examples:
      noetl db stop
    """
    from noetl.runtime.postgres.embedded import EmbeddedServer

    target = configured()
    target.refuse_external("stop")
    click.echo("Stopped." if EmbeddedServer(target.home).stop() else "It did not run.")


@db.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show how and where the database runs.

    \b
    Examples:
      noetl db status
      noetl db status --json | jq .running
    """
    from noetl.cli.storage.db_status import render
    from noetl.runtime.postgres.status import embedded_status, external_status

    target = configured()
    facts = embedded_status(target.home) if target.url is None else external_status(target.url, target.owner_url)
    click.echo(json.dumps(facts, indent=2) if as_json else render(facts), nl=as_json)


@db.command()
@click.option("--role", type=click.Choice(ROLES), default="runtime", show_default=True, help="Who connects.")
@click.option("--tcp", is_flag=True, help="By loopback TCP, not by the Unix socket.")
def url(role: str, tcp: bool) -> None:
    """Print a connection URL for psql and other tools.

    The embedded server answers only while it runs, and nothing but `noetl` starts it: run `noetl db start` first, which keeps it
    running until `noetl db stop`. The URL names the file that holds the password, which psql and other programs on libpq
    read by themselves; it never holds the password. An external database has the URLs of the settings alone: the runtime's,
    and the owner's if it is given.

    \b
    Examples:
      noetl db start && psql "$(noetl db url --role owner)"
      noetl db url --tcp
    """
    from noetl.runtime.postgres.embedded import EmbeddedServer

    target = configured()
    if target.url is not None:
        known = {"runtime": target.url, "owner": target.owner_url}
        if (found := known.get(role)) is None:
            raise InputError(
                f"the settings name no URL for the role {role} of the external database",
                hint="set NOETL_OWNER_DATABASE_URL" if role == "owner" else "use --role runtime",
            )
        click.echo(found)
        return
    server = EmbeddedServer(target.home)
    click.echo(server.url(f"noetl_{role}", tcp=tcp))


@db.command()
@click.option("--to", "revision", default="head", show_default=True, help="Revision to go to; `base` undoes all.")
@click.option("--sql-status", is_flag=True, help="Only compare the schema with the newest; exit 1 if it is behind.")
@click.option("--yes", is_flag=True, help="Do not ask before going back, which drops tables.")
@click.option("--store", help="The database of this projection store, not the ledger's.")
@click.pass_context
def migrate(ctx: click.Context, revision: str, sql_status: bool, yes: bool, store: str | None) -> None:
    """Bring the schema to the newest revision, or to the one given.

    \b
    Examples:
      noetl db migrate
      noetl db migrate --store analytics
      noetl db migrate --sql-status
      noetl db migrate --to base --yes
    """
    from noetl.runtime.postgres import migrations
    from noetl.runtime.postgres.status import reachable

    target = configured() if store is None else configured_store(store)
    with target.as_owner() as owner_url, reachable():
        before = migrations.current(owner_url)
        if sql_status:
            click.echo(f"schema {before or 'not there'}, newest {migrations.head()}")
            ctx.exit(0 if before == migrations.head() else 1)
        migrations.check_known(before)
        goal = migrations.head() if revision == "head" else revision
        # Revisions are zero-padded numbers, so that their order as text is their order in time.
        back = before is not None and (goal == "base" or goal.startswith("-") or goal < before)
        if back and not yes:
            click.confirm(f"Going back from {before} to {goal} drops tables and their data. Go on?", abort=True)
        applied = (migrations.downgrade if back else migrations.upgrade)(owner_url, revision)
    for step in applied:
        click.echo(f"applied {step}")
    if not applied:
        click.echo(f"The schema is at {before or 'base'} already.")


@db.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(yes: bool) -> None:
    """Delete the embedded database with all its data.

    Stored payloads are left where they are. An external database is never touched.

    \b
    Examples:
      noetl db reset
      noetl db reset --yes && noetl db migrate
    """
    from noetl.runtime.postgres.embedded import EmbeddedServer

    target = configured()
    target.refuse_external("reset")
    server = EmbeddedServer(target.home)
    info = server.status()
    if not info.initialized:
        click.echo("There is no database to delete.")
        return
    if not yes:
        click.confirm(f"Delete the database in {info.data_dir} with all events in it?", abort=True)
    server.destroy()
    click.echo("Deleted.")
