"""Files of datasets that a disk, a person or another program damaged: refused, found, and built again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import Damaged, Unavailable
from noetl.model.dataset import FileEntry
from noetl.pipelines.damage.finder import DamageFinder
from noetl.pipelines.damage.repair import Repaired, Repairs
from noetl.pipelines.datasets.dataset_reader import DatasetReader
from noetl.runtime.assembly.changes import changes_of
from noetl.services.query.access import Asker
from noetl.services.query.audit import Audit
from noetl.services.query.duck.pool import Duck
from noetl.services.query.options import DuckOptions, Limits
from noetl.services.query.pins import Pinning
from noetl.services.query.queries import Queries
from noetl.services.query.question import Answer, Question
from noetl.spark.lake.integrity.checks import Bound, Checks, Unproven
from noetl.spark.lake.storage import Lake
from noetl.testing.attacks import files as attacks
from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.samples.drafts import PRODUCER

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

DAG = """\
name: shop
jobs:
  - {name: orders, operator: made, runtime: dispatcher, partition_by: [day]}
  - name: totals
    operator: made
    runtime: dispatcher
    partition_by: [day]
    inputs: [orders]
    config: {query: "SELECT day, sum(amount)::bigint AS amount FROM orders GROUP BY day"}
publish: [orders, totals]
"""
ROWS = [{"day": day, "amount": amount} for day in ("1", "2") for amount in range(1, 12)]
SUM = "SELECT sum(amount)::bigint AS amount FROM orders"


class Shop:
    """Two datasets, one made of the other, and the ways to read them."""

    def __init__(self, tested: TestedPipelines, queries: Queries) -> None:
        self.tested = tested
        self.queries = queries
        runtime = tested.runtime
        self.finder = DamageFinder(tested.scope, runtime.database, runtime.payloads, tested.lake)
        self.changes = changes_of(runtime, tested.pipelines)

    async def entry(self, name: str, key: str) -> FileEntry:
        view = await self.tested.view(name)
        manifests = await self.tested.pipelines.datasets.manifests(self.tested.scope, view.partitions)
        return next(one.files[0] for one in manifests if one.partition_key == key)

    async def file(self, name: str, key: str) -> Path:
        found = self.tested.lake.local(await self.entry(name, key))
        assert found is not None
        return found

    async def rebuilt(self, name: str, key: str) -> str | None:
        one = await self.changes.invalidations.invalidate(self.tested.scope, name, partition_key=key, by="tests")
        return await self.finished(one.invalidation_id)

    async def finished(self, run: int) -> str | None:
        return (await self.tested.finished(run)).error

    async def repaired(self, name: str) -> Repaired:
        tested, runtime = self.tested, self.tested.runtime
        reader = DatasetReader(tested.scope, runtime.database, runtime.payloads, runtime.history)
        repairs = Repairs(tested.scope, reader, self.finder, tested.lake, self.changes, self.finished)
        return await repairs.repair(name, by="tests")

    async def ask(self, sql: str = SUM) -> Answer:
        return await self.queries.ask(Asker(scope=self.tested.scope, name="tests", admin=True), Question(sql=sql))


@pytest.fixture
async def shop(pipelines: TestedPipelines) -> Any:
    pipelines.made.given["orders"] = lambda work: [
        row for row in ROWS if work.grant.partition_key in ("all", f"day={row['day']}")
    ]
    await pipelines.deploy(DAG)
    runtime, root = pipelines.runtime, str(pipelines.home.parent / "lake")
    duck = Duck(DuckOptions(home=str(pipelines.home / "query"), lake_root=root, memory="256MB", threads=1))
    audit = Audit(runtime.database, runtime.ledger, runtime.ids.mint_many, PRODUCER)
    pinning = Pinning(runtime.database, pipelines.pipelines.datasets)
    limits = Limits(proof=Bound(bytes=1 << 20, seconds=10))
    yield Shop(pipelines, Queries(pinning, audit, duck, Checks(Lake(root)), None, runtime.ids.mint, limits))
    await duck.close()


async def test_damaged_files_are_refused_by_every_reader_and_found(shop: Shop) -> None:
    """INV-183, INV-185, INV-186."""
    first = await shop.ask()
    assert (first.table.to_pylist(), first.proven.files) == ([{"amount": 132}], 2)
    assert (await shop.ask()).proven.files == 0
    file, entry = await shop.file("orders", "day=1"), await shop.entry("orders", "day=1")
    whole = file.read_bytes()
    for name, attack in attacks.VISIBLE.items():
        attack(file)
        with pytest.raises(Damaged, match=f"dataset orders cannot be read: the file {entry.path}"):
            await shop.ask()
        with pytest.raises(Damaged, match=entry.path):
            await shop.tested.rows("orders")
        assert entry.path in (await shop.rebuilt("totals", "day=1") or ""), name
        report = await shop.finder.find()
        (told,) = report.damaged
        assert (told.dataset, told.partition_key, told.entry.path) == ("orders", "day=1", entry.path)
        assert told.task_id == (await shop.tested.tasks("orders"))[0].task_id
        assert told.damage.expected_sha256 == entry.sha256
        quick = await shop.finder.find(hashed=False)
        assert [one.entry.path for one in quick.damaged] == [entry.path]
        file.write_bytes(whole)
    again = await shop.ask()
    assert (again.table.to_pylist(), again.proven.files) == ([{"amount": 132}], 1)
    assert (await shop.finder.find()).clean


async def test_what_is_damaged_is_built_again(shop: Shop) -> None:
    """INV-186: a job builds its partition from its inputs, a source is asked for it, and older versions are sound again."""
    before = await shop.entry("orders", "day=1"), await shop.entry("totals", "day=2")
    attacks.flip_a_bit(await shop.file("orders", "day=1"), column="amount")
    attacks.remove(await shop.file("totals", "day=2"))
    assert len((await shop.finder.find()).damaged) == 2
    for name, key in (("orders", "day=1"), ("totals", "day=2")):
        done = await shop.repaired(name)
        assert (done.partitions, done.errors, done.after.damaged) == ((key,), (), [])
    assert list(done.restored) == [before[1].path]
    after = await shop.entry("orders", "day=1"), await shop.entry("totals", "day=2")
    assert [one.sha256 for one in after] == [one.sha256 for one in before]
    assert not {one.path for one in after} & {one.path for one in before}
    assert (await shop.finder.find()).clean
    assert (await shop.ask()).table.to_pylist() == [{"amount": 132}]
    assert (await shop.ask(SUM.replace("orders", "totals"))).table.to_pylist() == [{"amount": 132}]
    assert not (await shop.repaired("orders")).before.damaged


async def test_a_bit_that_a_disk_lost_is_found_before_duckdb_reads_it(shop: Shop) -> None:
    """INV-185: the time of the file is as it was, so that only its bytes tell."""
    file = await shop.file("orders", "day=2")
    attacks.flip_a_bit(file, column="amount", unseen=True)
    with pytest.raises(Damaged, match="its SHA-256 is"):
        await shop.ask()
    attacks.swap(await shop.file("totals", "day=1"), unseen=True)
    with pytest.raises(Damaged, match="its SHA-256 is"):
        await shop.ask(SUM.replace("orders", "totals"))
    assert {one.dataset for one in (await shop.finder.find()).damaged} == {"orders", "totals"}
    # A page that changed under its time is found by hashing alone; another footer at a look.
    assert {one.dataset for one in (await shop.finder.find(hashed=False)).damaged} == {"totals"}


async def test_what_cannot_be_looked_at_is_told_and_nothing_is_built(shop: Shop) -> None:
    """INV-183, INV-186: one file that fails, or a lake that is away, is no damage, and the others are looked at."""
    file = await shop.file("orders", "day=1")
    whole = file.read_bytes()
    file.unlink()
    file.symlink_to(file.name)
    attacks.flip_a_bit(await shop.file("totals", "day=1"))
    report = await shop.finder.find()
    assert ([one.dataset for one in report.damaged], len(report.unreadable)) == (["totals"], 1)
    assert f"the lake does not answer for {file}" in report.unreadable[0]
    done = await shop.repaired("orders")
    assert (done.partitions, done.after.clean) == ((), False)
    file.unlink()
    file.write_bytes(whole)
    lake = shop.tested.home.parent / "lake"
    lake.rename(lake.with_name("elsewhere"))
    for build in ("orders", "totals"):
        done = await shop.repaired(build)
        assert (done.partitions, len(done.after.unreadable), done.after.damaged) == ((), 1, [])
    with pytest.raises(Unavailable, match="is missing or empty"):
        await shop.ask()
    run = shop.rebuilt("totals", "day=2")
    assert "is missing or empty" in (await run or "")


async def test_a_first_proof_is_bounded_by_itself(shop: Shop) -> None:
    """INV-185."""
    shop.queries.limits = Limits(proof=Bound(bytes=10, seconds=10))
    with pytest.raises(Unproven, match="more bytes than") as refused:
        await shop.ask()
    assert "noetl datasets verify" in str(refused.value.hint)
    entries = [await shop.entry("orders", key) for key in ("day=1", "day=2")]
    with pytest.raises(Unproven, match="longer than"):
        await asyncio.to_thread(shop.tested.lake.checks.proven, entries, Bound(bytes=1 << 30, seconds=-1.0))


PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: rows, path: shop/rows}
workload: {partition: null}
workflow:
  - step: make
    tool:
      kind: python
      code: |
        result = [{"id": number, "amount": number} for number in range(12)]
"""
COMMANDS_DAG = """\
name: shop
jobs:
  - {name: orders, playbook: rows.yaml}
publish: [orders]
"""


def test_commands_refuse_damage_and_say_who_mends_it(
    noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-183, INV-186: no command prints a traceback, and each names the file and what to do."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    (tmp_path / "rows.yaml").write_text(PLAYBOOK)
    (tmp_path / "dag.yaml").write_text(COMMANDS_DAG)
    code, output, errors = noetl("dag", "run", "dag.yaml")
    assert code == 0, output + errors
    assert noetl("datasets", "verify", "--json")[0] == 0
    file = Path(noetl("datasets", "path", "orders")[1].strip())
    attacks.flip_a_bit(file, column="amount")
    for command in (
        ("datasets", "show", "orders"),
        ("datasets", "head", "orders"),
        ("datasets", "export", "orders", str(tmp_path / "copy")),
        ("query", "SELECT sum(amount) FROM orders"),
        ("explain", "orders", "--where", "id=3"),
    ):
        code, output, errors = noetl(*command)
        assert (command, code, "Traceback" in output + errors) == (command, 1, False)
        assert (command, file.name in errors, "noetl datasets repair" in errors) == (command, True, True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".copy")]
    for command in (("verify", "--all", "--payloads"), ("verify",), ("datasets", "verify", "orders")):
        code, output, errors = noetl(*command)
        assert (command, code, file.name in output) == (command, 1, True), output + errors
        assert "noetl datasets repair orders" in output
    assert "NOT hashed" not in noetl("verify")[1]
    code, output, _ = noetl("datasets", "verify", "--json")
    (told,) = json.loads(output)["damaged"]
    assert (told["dataset"], told["partition_key"], told["job"], told["why"]) == (
        "orders",
        "all",
        "shop.orders",
        "content",
    )
    code, output, errors = noetl("datasets", "repair", "orders")
    assert code == 0, output + errors
    assert noetl("datasets", "verify")[0] == noetl("verify", "--all", "--payloads")[0] == 0
    assert '"amount": 66' in noetl("query", "SELECT sum(amount)::int AS amount FROM orders", "--format", "json")[1]


def test_plain_verify_hashes_every_file(noetl: Noetl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-186: a bit that was lost under the same size and time is found, and a quicker look says what it is."""
    monkeypatch.setenv("NOETL_RUNTIME__HOME", str(tmp_path / "home"))
    (tmp_path / "rows.yaml").write_text(PLAYBOOK)
    (tmp_path / "dag.yaml").write_text(COMMANDS_DAG)
    code, output, errors = noetl("dag", "run", "dag.yaml")
    assert code == 0, output + errors
    file = Path(noetl("datasets", "path", "orders")[1].strip())
    attacks.flip_a_bit(file, column="amount", unseen=True)
    for command in (("verify",), ("verify", "--all"), ("datasets", "verify")):
        code, output, errors = noetl(*command)
        assert (command, code, file.name in output) == (command, 1, True), output + errors
    code, output, errors = noetl("verify", "--no-hash")
    assert (code, "NOT hashed" in output) == (0, True), output + errors
    assert json.loads(noetl("verify", "--no-hash", "--json")[1])["reports"][0]["files_hashed"] is False
    code, _, errors = noetl("verify", "last", "--no-hash")
    assert (code, "leave out --no-hash" in errors) == (2, True)
