"""Queries on Spark: ordinary analytics run in a session that sees only their relations, and end when told to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.unit.services.query.corpus import blocks
from tests.unit.services.query.market import in_lake

from noetl.model.stream import Scope
from noetl.services.query.errors import QueryFailed, QueryTimedOut
from noetl.services.query.gate.gate import read
from noetl.services.query.on_spark import OnSpark
from noetl.spark.drivers.protocol import Relation
from noetl.testing.servers.spark import SharedDrivers

SCOPE = Scope("acme", "market")
ENDLESS = "SELECT count(*) AS n FROM range(0, 100000000000, 1, 4) AS a WHERE sqrt(a.id) < 0"


@pytest.fixture
def relations(spark_drivers: SharedDrivers) -> dict[str, Relation]:
    """The market in the lake of the drivers."""
    known = in_lake(Path(spark_drivers.options.lake_root) / "market")
    return {
        name: Relation(name=name, columns=columns, files=(msgspec.structs.replace(entry, path=f"market/{entry.path}"),))
        for name, (columns, entry) in known.items()
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ordinary_analytics_run_on_spark(spark_drivers: SharedDrivers, relations: dict[str, Relation]) -> None:
    spark = OnSpark(spark_drivers)
    asked = [one for one in blocks("ordinary.sql") if one.engine in (None, "spark")]

    async def run(number: int) -> None:
        checked = read(asked[number].sql, "spark")
        names = {name: f"__noetl_{place}" for place, name in enumerate(checked.datasets)}
        own = [msgspec.structs.replace(relations[name], name=fixed) for name, fixed in names.items()]
        # All are analysed; running every one of them would take most of a minute.
        runs = asked[number].engine == "spark" or number % 3 == 0
        sql = checked.executable(names, tuple(relations), 10_001 if runs else 0)
        try:
            table = await spark.answer(SCOPE, number + 1, own, sql, 240)
        except QueryFailed as problem:
            raise AssertionError(f"{asked[number].name}: {problem.message}\n{sql}") from None
        assert bool(table.num_rows) == runs, asked[number].name

    for start in range(0, len(asked), 4):
        await asyncio.gather(*map(run, range(start, min(start + 4, len(asked)))))


async def test_texts_reach_spark_as_they_were_asked(spark_drivers: SharedDrivers) -> None:
    texts = ("it's", 'a "b"', "back\\slash", "$notavariable", "a;b --c", "tab\there", "línea\nnueva", "%_", "`x`", "{}")
    listed = ", ".join(
        "'" + one.replace("\\", "\\\\").replace("'", "\\'") + f"' AS t{n}" for n, one in enumerate(texts)
    )
    sql = read(f"SELECT {listed}", "spark").executable({}, (), 11)
    table = await OnSpark(spark_drivers).answer(SCOPE, 101, [], sql, 120)
    assert tuple(table.to_pylist()[0].values()) == texts


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM parquet.`{lake}/market/nation.parquet`",
        "SELECT * FROM nation",
        "SELECT nope FROM __noetl_0",
        "SELECT reflect('java.lang.System', 'getenv', 'PATH') AS path",
        "SELECT java_method('java.lang.System', 'getenv', 'PATH') AS path",
        "SELECT try_reflect('java.lang.System', 'getenv', 'PATH') AS path",
        "SELECT input_file_name() AS name FROM __noetl_0",
    ],
)
async def test_a_session_for_queries_sees_only_its_relations(
    spark_drivers: SharedDrivers, relations: dict[str, Relation], sql: str
) -> None:
    """INV-77: this holds without the gate."""
    own = [msgspec.structs.replace(relations["region"], name="__noetl_0")]
    with pytest.raises(QueryFailed) as caught:
        await OnSpark(spark_drivers).answer(SCOPE, 201, own, sql.format(lake=spark_drivers.options.lake_root), 120)
    assert "== SQL" not in caught.value.message


async def test_a_session_for_queries_knows_no_variables(spark_drivers: SharedDrivers) -> None:
    """INV-77: this holds without the gate."""
    table = await OnSpark(spark_drivers).answer(SCOPE, 202, [], "SELECT '${env:PATH}' AS path", 120)
    assert table.to_pylist() == [{"path": "${env:PATH}"}]


async def test_a_query_that_takes_too_long_is_interrupted_by_its_tag(spark_drivers: SharedDrivers) -> None:
    """INV-77: the driver goes on with the next one."""
    spark = OnSpark(spark_drivers)
    await spark.answer(SCOPE, 300, [], "SELECT 1 AS one", 120)
    with pytest.raises(QueryTimedOut):
        await spark.answer(SCOPE, 301, [], ENDLESS, 1.0)
    async with asyncio.timeout(60):
        assert (await spark.answer(SCOPE, 302, [], "SELECT 2 AS two", 60)).to_pylist() == [{"two": 2}]
