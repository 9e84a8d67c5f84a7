"""`noetl proof`: proves that an execution's events stand unchanged, and checks such proofs without a database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noetl.errors import InputError
from noetl.runtime.commands.execution import find_execution

if TYPE_CHECKING:
    from noetl.kernel.ledger.chain.proof import Proof

_FILE = click.Path(dir_okay=False, path_type=Path)


class _ProofGroup(click.Group):
    """A group whose first word may be an execution."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["execution", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_ProofGroup)
def proof() -> None:
    """Prove that the events of an execution stand in the ledger as they were recorded.

    `noetl proof EXECUTION` is short for `noetl proof execution EXECUTION`.

    \b
    Examples:
      noetl proof last --out proof.json
      noetl proof check proof.json --head heads.jsonl --key notary.pub
    """


@proof.command("execution")
@click.argument("execution")
@click.option("--out", type=_FILE, help="Write the proof to this file; otherwise it is printed.")
@click.option(
    "--head",
    "heads",
    type=_FILE,
    multiple=True,
    help="Prove under the newest head of this file, not the newest there is.",
)
def execution_proof(execution: str, out: Path | None, heads: tuple[Path, ...]) -> None:
    """Print a document that proves every event of EXECUTION: an id, a locator or `last`.

    It holds the events' own columns and, for each, at most 64 hashes that lead to the root of a signed head. It tells
    nothing about other executions, and can be checked anywhere.

    \b
    Examples:
      noetl proof last --out proof.json
      noetl proof 381335019135709184 --head kept/heads.jsonl
    """
    import msgspec

    made = asyncio.run(_prove(execution, heads))
    text = msgspec.json.format(msgspec.json.encode(made), indent=1).decode()
    if out is None:
        click.echo(text)
        return
    try:
        out.write_text(text + "\n")
    except OSError as problem:
        raise InputError(f"{out} cannot be written: {problem.strerror}") from None
    click.echo(
        f"{len(made.events)} events of execution {made.execution_id} under the head over {made.head.size} events of shard"
        f" {made.head.shard}, signed {made.head.signed_at}: {out}"
    )


async def _prove(execution: str, heads: tuple[Path, ...]) -> Proof:
    from noetl.kernel.ledger.chain.proof import prove_execution
    from noetl.kernel.ledger.chain.stored import Trees
    from noetl.runtime.config import load_settings
    from noetl.runtime.notary import heads_in
    from noetl.runtime.wiring import open_runtime

    async with open_runtime(load_settings()) as runtime:
        scope, execution_id = await find_execution(runtime, execution)
        return await prove_execution(runtime.history, Trees(runtime.database), scope, execution_id, heads_in(heads))


@proof.command()
@click.argument("file", type=_FILE)
@click.option("--head", "heads", type=_FILE, multiple=True, required=True, help="A file of heads that you kept.")
@click.option("--key", type=_FILE, required=True, help="The public key that must have signed the head.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(ctx: click.Context, file: Path, heads: tuple[Path, ...], key: Path, as_json: bool) -> None:
    """Check the proof in FILE against a head that you kept; exit 1 if it does not hold. Needs no database.

    \b
    Examples:
      noetl proof check proof.json --head heads.jsonl --key notary.pub
    """
    import msgspec

    from noetl.kernel.ledger.chain.proof import Proof, problems_of
    from noetl.runtime.notary import heads_in, public_key

    try:
        made = msgspec.json.decode(file.read_bytes(), type=Proof)
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}") from None
    except msgspec.DecodeError as problem:
        raise InputError(f"{file} is no proof: {problem}") from None
    problems = problems_of(made, heads_in(heads), public_key(key))
    if as_json:
        plain = {
            "holds": not problems,
            "execution_id": made.execution_id,
            "events": len(made.events),
            "problems": problems,
        }
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        for sentence in problems:
            click.echo(sentence)
        if not problems:
            hashes = max(len(one.path) for one in made.events)
            click.echo(
                f"The proof holds: {len(made.events)} events of execution {made.execution_id} stand unchanged under the head"
                f" of {made.head.signed_at}, by at most {hashes} hashes each."
            )
    ctx.exit(0 if not problems else 1)
