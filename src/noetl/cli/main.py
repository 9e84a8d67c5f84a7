"""The `noetl` command: finds the subcommand, runs it, and turns errors into one plain line and an exit code.

Subcommands are imported only when they are run, so help and completion stay quick. Exit codes: 0 done, 1 the run failed
or the answer is no (also when the reader of our output went away), 2 the input is wrong, 3 a server cannot be reached,
4 what was asked for is not proven yet, 130 interrupted.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from noetl import __version__
from noetl.cli.terminal.messages import let_go, occupy
from noetl.errors import InputError, NoetlError, Unavailable

COMMANDS = {
    "alerts": (
        "noetl.cli.services.alerts:alerts",
        "Rules over runs and data, and who is told when they find something.",
    ),
    "catalog": ("noetl.cli.catalog:catalog", "Register playbooks and look at what is registered."),
    "check": ("noetl.cli.check:check", "Check playbooks, DAGs, views and alerts without running them."),
    "config": ("noetl.cli.config:config", "Show and check the settings."),
    "credentials": ("noetl.cli.services.credentials:credentials", "Keep credentials and hand out API tokens."),
    "curated": ("noetl.cli.services.curated:curated", "Views over all tenants, for operators."),
    "dag": ("noetl.cli.dags.command:dag", "Build and serve versioned datasets from DAGs of jobs."),
    "datasets": ("noetl.cli.datasets.command:datasets", "Look at datasets: rows, files, generations, what differs."),
    "db": ("noetl.cli.storage.db:db", "Start, stop, migrate and inspect the database."),
    "dev": ("noetl.cli.roles.dev:dev", "Server and worker in one process that register playbooks as they change."),
    "doctor": ("noetl.cli.doctor:doctor", "Check that everything NoETL needs is there."),
    "events": ("noetl.cli.executions.events:events", "Read the ledger."),
    "executions": ("noetl.cli.executions.command:executions", "List, show, cancel and re-run executions."),
    "explain": (
        "noetl.cli.datasets.explain:explain",
        "Tell where rows of a dataset come from, back to what caused them.",
    ),
    "fabric": (
        "noetl.cli.storage.fabric:fabric",
        "See what the payload tiers of this node hold and how well they serve.",
    ),
    "home": ("noetl.cli.home:home", "Show which home, settings and database the commands run here use."),
    "lake": ("noetl.cli.ledger.lake:lake", "Keep all events as a dataset, verify it, and build it anew."),
    "lineage": ("noetl.cli.datasets.lineage:lineage", "Show which datasets and columns come from which."),
    "materializer": ("noetl.cli.roles.materializer:materializer", "Write what the stream has into the ledger."),
    "node-broker": (
        "noetl.cli.roles.node_broker:node_broker",
        "Hand out shared memory between the processes of a node.",
    ),
    "notary": ("noetl.cli.roles.notary:notary", "Sign heads of the ledger, so that changes of it are found."),
    "payloads": ("noetl.cli.storage.payloads:payloads", "Look at stored payloads and collect unused ones."),
    "projections": ("noetl.cli.ledger.projections:projections", "Inspect, rebuild and catch up projections."),
    "projector": ("noetl.cli.roles.projector:projector", "Keep the projections of some shards."),
    "proof": (
        "noetl.cli.ledger.proof:proof",
        "Prove that an execution's events stand unchanged, and check such proofs.",
    ),
    "query": ("noetl.cli.datasets.query:query", "Ask published datasets in SQL, now or as of any point."),
    "relay": ("noetl.cli.roles.relay:relay", "Bring committed events to the stream."),
    "replay": ("noetl.cli.executions.replay:replay", "Rebuild the state of an execution as of any position."),
    "retention": ("noetl.cli.storage.retention.command:retention", "Let go of what is old enough, pin what must stay."),
    "run": ("noetl.cli.run.command:run", "Run a playbook to its end."),
    "schedule": (
        "noetl.cli.services.schedule:schedule",
        "Start playbooks at times, and see what schedules did and will do.",
    ),
    "scheduler": ("noetl.cli.roles.scheduler:scheduler", "Run what schedules plan."),
    "schema": ("noetl.cli.schema:schema", "Print the schemas of playbooks, DAGs, views and events."),
    "server": ("noetl.cli.roles.server:server", "Serve the REST API and decide what happens next."),
    "spark": ("noetl.cli.dags.spark:spark", "Prepare what Spark runs on: packed environments and a quick start."),
    "stream": ("noetl.cli.ledger.stream.command:stream", "Look at the stream of events, and fill it anew."),
    "tasks": ("noetl.cli.dags.tasks:tasks", "List, show, retry and cancel the tasks of dataset jobs."),
    "verify": ("noetl.cli.ledger.verify:verify", "Prove that projections equal what the ledger says."),
    "views": ("noetl.cli.services.views:views", "Keep tables up to date with the ledger, and prove that they are."),
    "why": ("noetl.cli.executions.why:why", "Tell why an execution stands or ended as it did."),
    "worker": ("noetl.cli.roles.worker:worker", "Work on what executions ask for."),
}
"""Each subcommand with the place of its code and its line in the help."""

EXIT_FAILED, EXIT_INPUT, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130


class LazyGroup(click.Group):
    """A command group that knows its subcommands by name and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            loaded = import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise click.UsageError(f"'{cmd_name}' is not part of this installation.", ctx) from None
        command = getattr(loaded, attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from the table, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in sorted(COMMANDS.items())])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; a misspelt one is answered with the nearest name."""
        from difflib import get_close_matches

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            question = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{question}", ctx)
        return super().resolve_command(ctx, args)


_ROOM: Final = "free some space, or set NOETL_HOME to a directory on another disk"
_RIGHTS: Final = "give your account the right to it, or set NOETL_HOME to a directory that you may write to"
_MACHINE_SAYS_NO: Final = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "the disk fails: look at the log of the system",
}
"""What to do where the machine refuses, wherever that happened: a traceback would help nobody."""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="noetl")
def cli() -> None:
    """NoETL: workflows and data pipelines on an event ledger.

    \b
    Examples:
      noetl run playbook.yaml     run a playbook here, without a server
      noetl executions list       see what ran
      noetl why last              see why it ended as it did
      noetl dev                   a server with a worker, for trying things out
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    occupy()
    try:
        code = run(arguments)
        if sys.stdout is not None:  # as it is where a process is started without one
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `| head` does; what is left in the buffer must not fail again at exit.
        let_go(sys.stdout)
        code = EXIT_FAILED
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed, not raised."""
    try:
        answer = cli.main(None if arguments is None else list(arguments), prog_name="noetl", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except NoetlError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return exit_code(error)
    except OSError as problem:
        if problem.errno not in _MACHINE_SAYS_NO:
            raise
        click.echo(f"error: {problem.filename or 'a file'}: {problem.strerror}", err=True)
        click.echo(f"hint: {_MACHINE_SAYS_NO[problem.errno]}", err=True)
        return EXIT_FAILED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        interrupted = isinstance(error.__cause__, KeyboardInterrupt)
        click.echo("interrupted" if interrupted else "aborted: nothing was done", err=True)
        return EXIT_INTERRUPTED if interrupted else EXIT_FAILED


def exit_code(error: NoetlError) -> int:
    """The exit code for an error: wrong input, unreachable server, or failure."""
    if isinstance(error, InputError):
        return EXIT_INPUT
    return EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_FAILED
