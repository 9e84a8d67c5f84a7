"""Proofs of executions: made from trees in PostgreSQL, live or archived, and checked with a head and nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from tests.contracts.test_retention import JANUARY, Place, minting, run_of

from noetl.cli import main
from noetl.errors import NotFound
from noetl.kernel.ledger.chain.heads import Head, Signer
from noetl.kernel.ledger.chain.notary import HeadFile, Notary
from noetl.kernel.ledger.chain.proof import Proof, problems_of, prove_execution
from noetl.kernel.ledger.chain.stored import Trees
from noetl.kernel.ledger.postgres.database import Database
from noetl.kernel.ledger.postgres.ledger import PostgresLedger
from noetl.kernel.payloads.memory import MemoryPayloadStore
from noetl.kernel.replay.chain import ChainCheck
from noetl.model.ids import SnowflakeGenerator
from noetl.model.stream import Scope
from noetl.testing.samples.drafts import Drafts

pytestmark = [pytest.mark.service, pytest.mark.no_parity]

CARE, OTHERS = Scope("acme", "care"), Scope("globex", "books")
IDS = SnowflakeGenerator(31, lambda: time.time_ns() // 1_000_000)


class Notarized:
    """A ledger with a notary that publishes to a file."""

    def __init__(self, database: Database, ledger: PostgresLedger, folder: Path) -> None:
        self.place = Place(database, ledger, MemoryPayloadStore())
        self.ledger, self.trees, self.folder = ledger, Trees(database), folder
        self.signer = Signer(folder)

    async def sign(self) -> list[Head]:
        self.file = HeadFile(self.folder, await self.trees.ledger())
        return await Notary(self.trees, self.signer, self.file.publish, self.file.newest()).round()

    async def prove(self, execution_id: int) -> Proof:
        return await prove_execution(self.place.history, self.trees, CARE, execution_id)

    def problems(self, proof: Proof) -> list[str]:
        # Through JSON, as it comes to another machine.
        read = msgspec.json.decode(msgspec.json.encode(proof), type=Proof)
        return problems_of(read, self.file.heads(), self.signer.public)


@pytest.fixture
def notarized(database: Database, ledger: PostgresLedger, tmp_path: Path) -> Notarized:
    return Notarized(database, ledger, tmp_path)


async def test_a_proof_holds_at_every_size_and_says_nothing_of_others(notarized: Notarized) -> None:
    """INV-207."""
    own, others = Drafts(CARE, IDS.mint), Drafts(OTHERS, IDS.mint)
    run, loop = own.mint(), own.mint()
    said = {"name": "Zoë \U0001f600", "share": 0.1}
    items = [own.loop_item(run, loop, number, context=said) for number in range(700)]
    shard = items[0].stream.shard
    theirs = [others.loop_item(others.mint(), 1, 0, meta={"secret": "hidden"})]
    while theirs[0].stream.shard != shard:
        theirs = [others.loop_item(others.mint(), 1, 0, meta={"secret": "hidden"})]
    theirs += [others.loop_item(theirs[0].execution_id, 1, number) for number in (1, 2)]
    await notarized.ledger.append(theirs[0].stream, theirs[:1])
    with pytest.raises(NotFound, match="there is no execution"):
        await notarized.prove(run)
    await notarized.ledger.append(items[0].stream, items[:250])
    with pytest.raises(NotFound, match="no signed head covers position 251"):
        await notarized.prove(run)
    await notarized.sign()
    await notarized.ledger.append(theirs[0].stream, theirs[1:])
    await notarized.ledger.append(items[0].stream, items[250:])
    first = msgspec.structs.replace(notarized.file.newest()[shard])
    assert first.size == 251
    (head,) = await notarized.sign()
    assert await notarized.sign() == []
    proof = await notarized.prove(run)
    assert (len(proof.events), head.size) == (700, 703)
    assert notarized.problems(proof) == []
    assert max(len(one.path) for one in proof.events) == 10
    text = msgspec.json.encode(proof).decode()
    assert not any(word in text for word in ("globex", "hidden", str(theirs[0].event_id)))

    report = await ChainCheck(notarized.place.history, notarized.trees, notarized.file.heads()).shards()
    assert (report.differences, report.events, report.heads) == ([], 703, 2)


async def test_whatever_is_changed_in_a_proof_it_holds_no_more(notarized: Notarized, tmp_path: Path) -> None:
    """INV-207."""
    drafts = Drafts(CARE, IDS.mint)
    run, loop = drafts.mint(), drafts.mint()
    items = drafts.loop_items(run, loop, 5)
    await notarized.ledger.append(items[0].stream, items)
    await notarized.sign()
    proof = await notarized.prove(run)
    one, two, *rest = proof.events
    replace = msgspec.structs.replace

    def said(*events: object, **fields: object) -> str:
        changed = replace(proof, **({"events": list(events)} if events else {}), **fields)
        return " ".join(notarized.problems(changed))

    assert "does not lead to the root" in said(replace(one, event={**one.event, "status": "ok"}), two, *rest)
    assert "does not lead to the root" in said(replace(one, position=2), replace(two, position=1), *rest)
    assert "does not lead to the root" in said(replace(one, path=one.path[:-1]), two, *rest)
    assert "is not under the head" in said(replace(one, position=99), two, *rest)
    assert "no path has more than 64" in said(replace(one, path=one.path[:1] * 65), two, *rest)
    assert "two events of the proof have one position" in said(one, one)
    assert "is no event of execution 77" in said(execution_id="77")
    assert "cannot be read" in said(replace(one, path=["zz"]), two, *rest)
    assert "is not among the heads" in said(head=replace(proof.head, size=4))
    assert "has no events" in " ".join(notarized.problems(replace(proof, events=[])))
    forger = Signer(tmp_path / "forger")
    forged = forger.sign(replace(proof.head, root="00" * 32))
    assert "is not signed by the given key" in " ".join(problems_of(proof, [forged], notarized.signer.public))
    assert problems_of(proof, [proof.head], notarized.signer.public) == []


async def test_the_command_checks_a_proof_without_a_database(
    notarized: Notarized, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-207."""
    drafts = Drafts(CARE, IDS.mint)
    run, loop = drafts.mint(), drafts.mint()
    items = drafts.loop_items(run, loop, 3)
    await notarized.ledger.append(items[0].stream, items)
    await notarized.sign()
    file = tmp_path / "proof.json"
    file.write_bytes(msgspec.json.encode(await notarized.prove(run)))
    # Another machine: no home, and an address at which nothing listens.
    monkeypatch.setenv("NOETL_DATABASE__URL", "postgresql://nobody@127.0.0.1:1/none")
    ask = ["proof", "check", str(file), "--head", str(notarized.file.path), "--key", str(tmp_path / "notary.pub")]
    assert main.run(ask) == 0
    assert f"The proof holds: 3 events of execution {run}" in capsys.readouterr().out
    file.write_bytes(file.read_bytes().replace(b'"current_index":1', b'"current_index":2'))
    assert main.run([*ask, "--json"]) == 1
    assert '"holds": false' in capsys.readouterr().out
    file.write_text("{}")
    assert main.run(ask) == 2


async def test_leaves_outlive_the_month_of_their_events(notarized: Notarized) -> None:
    """INV-205: an archived execution is verified and proven like one that stands."""
    drafts = Drafts(CARE, minting(JANUARY))
    run = run_of(drafts)
    for draft in run:
        await notarized.ledger.append(draft.stream, [draft])
    await notarized.sign()
    await notarized.place.retain()
    async with notarized.place.database.transaction(None, "projector") as connection:
        assert (
            await connection.fetchval("SELECT count(*) FROM noetl.event WHERE execution_id = $1", run[0].execution_id)
            == 0
        )
    await notarized.sign()
    check = ChainCheck(notarized.place.history, notarized.trees, notarized.file.heads())
    report = await check.shards()
    assert report.differences == []
    assert report.events >= len(run)
    assert notarized.problems(await notarized.prove(run[0].execution_id)) == []
