"""`noetl query`: asks published datasets in SQL, and shows which questions were asked."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from noetl.errors import InputError

if TYPE_CHECKING:
    from noetl.services.query.audit import Asked, Outcome
    from noetl.services.query.question import Answer

Form = Literal["table", "csv", "json", "arrow"]


class QueryGroup(click.Group):
    """Takes what is no subcommand for a question."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `ask` before a question or its options."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["ask", *args]
        return super().parse_args(ctx, args)


@click.group(cls=QueryGroup)
def query() -> None:
    """Ask published datasets in SQL: `noetl query "SELECT …"`, with the options of `noetl query ask`.

    One SELECT is taken, over datasets by the names they are published under. What was read is told on stderr, so that
    the same can be asked again.

    \b
    Examples:
      noetl query "SELECT region, sum(amount) AS amount FROM sales_by_region GROUP BY region"
      noetl query --file report.sql --format csv --output report.csv
      noetl query "SELECT count(*) FROM sales_by_region" --as-of 2026-05-16T12:34:56Z
      noetl query log
    """


@query.command()
@click.argument("sql", required=False)
@click.option("--file", "file", metavar="F", help="Read the question from a file; - reads standard input.")
@click.option("--as-of", "point", metavar="POINT", help="As it was then: a mark (m1.…), a time, or an event id.")
@click.option("--engine", type=click.Choice(("duckdb", "spark")), default="duckdb", show_default=True,
              help="What runs it; the SQL is that of the engine.")  # fmt: skip
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Rows at most; default: the setting query.rows.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="S",
              help="Seconds at most; default: the setting query.timeout_seconds.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(("table", "csv", "json", "arrow")), default="table",
              show_default=True, help="How rows are written.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them to a file.")
def ask(
    sql: str | None,
    file: str | None,
    point: str | None,
    engine: Literal["duckdb", "spark"],
    limit: int | None,
    timeout: float | None,
    form: Form,
    output: Path | None,
) -> None:
    """Answer one SELECT over published datasets.

    \b
    Examples:
      noetl query "SELECT * FROM sales_by_region ORDER BY amount DESC" --limit 5
      noetl query --file - --format json < question.sql | jq .
      noetl query "SELECT * FROM sales_by_region" --format arrow --output sales.arrow
    """
    text = _question(sql, file)
    if form == "arrow" and output is None and sys.stdout.isatty():
        raise InputError("an Arrow stream is nothing for a terminal", hint="name a file with --output")
    answer = asyncio.run(_ask(text, point, engine, limit, timeout))
    data = _written(answer, form)
    if output is None:
        click.echo(data, nl=False)
    else:
        try:
            output.write_bytes(data)
        except OSError as problem:
            raise InputError(f"{output} cannot be written: {problem.strerror}") from None
    click.echo(_told(answer), err=True)


@query.command()
@click.option(
    "-n", "--limit", "count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most."
)
@click.option("--outcome", type=click.Choice(("answered", "refused", "failed")), help="Only those that came out so.")
@click.option("--dataset", metavar="NAME", help="Only those that read this dataset.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def log(count: int, outcome: Outcome | None, dataset: str | None, as_json: bool) -> None:
    """List questions that were asked, the newest first; what they said is not kept, only its SHA-256.

    \b
    Examples:
      noetl query log
      noetl query log --outcome refused --json
      noetl query log --dataset sales_by_region
    """
    found = asyncio.run(_log(count, outcome, dataset))
    if as_json:
        import msgspec

        click.echo(json.dumps([msgspec.to_builtins(one) for one in found], indent=2, ensure_ascii=False))
        return
    from noetl.cli.terminal.tables import rendered

    rows = [
        (
            one.query_id,
            f"{one.asked_at:%Y-%m-%d %H:%M:%S}",
            one.outcome if one.code is None else f"{one.outcome} ({one.code})",
            one.engine,
            "-" if one.rows is None else f"{one.rows:,}",
            f"{one.milliseconds:,.0f}",
            one.asked_by,
            one.sql_sha256[:12],
            ", ".join(read.name for read in one.datasets) or "-",
        )
        for one in found
    ]
    columns = ("query", "asked", "outcome", "engine", "rows", "ms", "by", "SHA-256", "datasets")
    click.echo(rendered(columns, rows), nl=False)


def _question(sql: str | None, file: str | None) -> str:
    if (sql is None) == (file is None):
        raise InputError("give the question as an argument or with --file")
    if file is None:
        return sql or ""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or 'not UTF-8'}") from None


async def _ask(
    text: str, point: str | None, engine: Literal["duckdb", "spark"], limit: int | None, timeout: float | None
) -> Answer:
    from noetl.runtime.assembly.queries import mark_of, open_queries
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime
    from noetl.services.query.access import Asker
    from noetl.services.query.question import Question

    async with open_runtime(load_settings()) as runtime, open_queries(runtime, "cli") as queries:
        mark = await mark_of(runtime, runtime.scope, point)
        question = Question(sql=text, engine=engine, mark=mark, rows=limit, seconds=timeout)
        # Whoever reaches the database and the lake themselves is the owner of both.
        return await queries.ask(Asker(scope=runtime.scope, name="cli", admin=True), question)


async def _log(count: int, outcome: Outcome | None, dataset: str | None) -> Sequence[Asked]:
    from noetl.runtime.assembly.queries import query_audit
    from noetl.runtime.config import load_settings
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        audit = query_audit(runtime, "cli")
        return await audit.listed(runtime.scope, outcome=outcome, dataset=dataset, limit=count)


def _written(answer: Answer, form: Form) -> bytes:
    from noetl.services.query.answer_formats import as_arrow, as_csv, as_rows, cell

    names = answer.table.column_names
    if form == "arrow":
        return as_arrow(answer.table, {"noetl.as_of": answer.mark.token()})
    if form == "csv":
        return as_csv(answer.table).encode()
    rows = as_rows(answer.table)
    if form == "json":
        if len(set(names)) < len(names):
            raise InputError("two columns have one name, which JSON cannot have", hint="name them with AS")
        objects: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in rows]
        return (json.dumps(objects, indent=2, ensure_ascii=False) + "\n").encode()
    from noetl.cli.terminal.tables import rendered

    return rendered(names, [["null" if one is None else cell(one) for one in row] for row in rows]).encode()


def _told(answer: Answer) -> str:
    rows = answer.table.num_rows
    text = f"{rows:,} {'row' if rows == 1 else 'rows'} in {answer.milliseconds:,.0f} ms"
    if answer.truncated:
        text += f"; there are more, cut at --limit {answer.limit}"
    proven = answer.proven
    if proven.files:
        text += (
            f"\n{proven.files:,} files ({proven.bytes:,} bytes) were hashed first, in {proven.seconds * 1000:,.0f} ms:"
        )
        text += " this node had not proven them before"
    for one in answer.datasets:
        text += f"\nread {one.name}, generation {one.dataset_version[:8]}"
    return f"{text}\nas of {answer.mark.token()}"
