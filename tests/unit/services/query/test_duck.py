"""DuckDB answers within its bounds, and reaches nothing but the files it was given even for SQL that never saw the gate."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.services.query.corpus import blocks
from tests.unit.services.query.market import in_lake

from noetl.errors import NoetlError
from noetl.model.dataset import Field
from noetl.services.query.duck.instance import confine, spare
from noetl.services.query.duck.pool import Duck
from noetl.services.query.duck.proof import NotProven, prove
from noetl.services.query.duck.protocol import Relation
from noetl.services.query.errors import AnswerTooLarge, QueryFailed, QueryRefused, QueryTimedOut
from noetl.services.query.gate.gate import read
from noetl.services.query.options import DuckOptions
from noetl.spark.lake.storage import Lake

OURS = "__noetl_0"
MEMORY = "256MB"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with one file that may be read and one that may not."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", None]}), tmp_path / "lake" / "own.parquet")
    pq.write_table(pa.table({"s": ["secret"]}), tmp_path / "lake" / "secret.parquet")
    return tmp_path / "lake"


@pytest.fixture
async def duck(lake: Path) -> AsyncIterator[Duck]:
    """The engine over that lake."""
    engine = Duck(
        DuckOptions(home=str(lake.parent / "query"), lake_root=str(lake), memory=MEMORY, threads=1, most_bytes=1 << 20)
    )
    yield engine
    await engine.close()


def own(*paths: str, uniform: bool = True, columns: tuple[Field, ...] | None = None) -> Relation:
    """Return the relation of the file that may be read."""
    known = columns or (Field("a", "bigint"), Field("b", "string"))
    return Relation(name=OURS, columns=known, paths=paths or ("own.parquet",), uniform=uniform)


def confined(lake: Path, tmp_path: Path) -> duckdb.DuckDBPyConnection:
    """Return a database as it is when a query begins."""
    connection = spare(MEMORY, 1, tmp_path / "spill", "1GB")
    confine(connection, Lake(str(lake)), [own()])
    return connection


async def test_an_answer_has_the_rows_and_columns_of_the_files(duck: Duck) -> None:
    table = await duck.answer([own()], f'SELECT b, a FROM "{OURS}" ORDER BY a DESC', 30)
    assert table.to_pylist() == [{"b": None, "a": 3}, {"b": "y", "a": 2}, {"b": "x", "a": 1}]


async def test_files_of_several_schemas_are_read_as_one(duck: Duck, lake: Path) -> None:
    pq.write_table(pa.table({"b": ["z"], "a": pa.array([2**40]), "c": [1.5]}), lake / "later.parquet")
    pq.write_table(pa.table({"a": pa.array([9], pa.int32())}), lake / "earlier.parquet")
    wide = (Field("a", "bigint"), Field("b", "string"), Field("c", "double"))
    relation = own("earlier.parquet", "own.parquet", "later.parquet", uniform=False, columns=wide)
    table = await duck.answer([relation], f'SELECT sum(a)::BIGINT AS a, count(b) AS b, max(c) AS c FROM "{OURS}"', 30)
    assert table.to_pylist() == [{"a": 9 + 6 + 2**40, "b": 3, "c": 1.5}]


async def test_a_dataset_without_files_has_no_rows(duck: Duck) -> None:
    empty = msgspec.structs.replace(own(), paths=())
    table = await duck.answer([empty], f'SELECT count(*) AS n, max(a) AS a FROM "{OURS}"', 30)
    assert table.to_pylist() == [{"n": 0, "a": None}]


REACHING = (
    "SELECT * FROM '{lake}/secret.parquet'",
    "SELECT * FROM read_parquet('{lake}/*.parquet')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('{lake}/*')",
    "SELECT * FROM 'https://127.0.0.1:1/x.parquet'",
    "COPY (SELECT 1) TO '{lake}/new.csv'",
    "COPY (SELECT 1) TO '{lake}/own.parquet'",
    "ATTACH '{lake}/x.duckdb'",
    "EXPORT DATABASE '{lake}/exported'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_paths = ['/']",
    "SET lock_configuration = false",
    "RESET enable_external_access",
    "PRAGMA enable_profiling = 'json'",
    "SET temp_directory = '/tmp'",
    "SELECT * FROM not_registered",
    "SELECT filename FROM __noetl_0",
)


@pytest.mark.parametrize("sql", REACHING)
def test_a_confined_database_reaches_nothing_by_itself(lake: Path, tmp_path: Path, sql: str) -> None:
    """INV-77: this holds without the gate."""
    before = {path: path.read_bytes() for path in lake.iterdir()}
    with confined(lake, tmp_path) as connection:
        assert connection.execute(f"SELECT count(*) FROM {OURS}").fetchall() == [(3,)]
        with pytest.raises(duckdb.Error):
            connection.execute(sql.format(lake=lake)).fetchall()
    assert {path: path.read_bytes() for path in lake.iterdir()} == before


def test_python_objects_are_no_tables(lake: Path, tmp_path: Path) -> None:
    hidden = pa.table({"s": ["secret"]})
    with confined(lake, tmp_path) as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("SELECT * FROM hidden").fetchall()
    assert hidden.num_rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM other",
        "SELECT * FROM main.__noetl_0",
        "SELECT * FROM (WITH hidden AS (SELECT 1) SELECT * FROM hidden) AS a, hidden",
        "SELECT (SELECT count(*) FROM 'x.parquet')",
        "FROM (SHOW TABLES)",
        "SELECT * FROM arrow_scan(1, 2, 3)",
        "this is no SQL",
    ],
)
def test_the_engine_itself_reads_one_select_over_its_relations(lake: Path, tmp_path: Path, sql: str) -> None:
    with confined(lake, tmp_path) as connection:
        with pytest.raises(NotProven):
            prove(connection, sql, [OURS])
        prove(connection, "WITH c AS (SELECT 1) SELECT * FROM c, range(3), __noetl_0, unnest([1])", [OURS])


async def test_sql_that_is_not_proven_is_refused(duck: Duck) -> None:
    with pytest.raises(QueryRefused, match="DuckDB reads the query differently"):
        await duck.answer([own()], "SELECT * FROM duckdb_settings()", 30)


async def test_an_error_of_the_engine_comes_without_the_sql(duck: Duck) -> None:
    with pytest.raises(QueryFailed) as caught:
        await duck.answer([own()], f"SELECT nope, 'pa55word' FROM \"{OURS}\"", 30)
    assert 'column "nope" not found' in caught.value.message
    assert "pa55word" not in caught.value.message


async def test_a_missing_file_is_said_without_its_path(duck: Duck, lake: Path) -> None:
    with pytest.raises(NoetlError) as caught:
        await duck.answer([own("gone.parquet")], f'SELECT * FROM "{OURS}"', 30)
    assert caught.value.code == "unavailable"
    assert str(lake) not in caught.value.message


async def test_an_answer_that_is_too_large_is_refused(duck: Duck) -> None:
    with pytest.raises(AnswerTooLarge, match="1,048,576 bytes"):
        await duck.answer([], "SELECT range AS a FROM range(1000000)", 30)


async def test_a_query_that_takes_too_much_memory_is_stopped_and_others_go_on(duck: Duck) -> None:
    with pytest.raises(QueryFailed, match="memory"):
        await duck.answer([], "SELECT length(repeat('x', 2000000000)) AS n", 60)
    assert (await duck.answer([], "SELECT 1 AS one", 30)).to_pylist() == [{"one": 1}]


async def test_what_does_not_fit_in_memory_is_spilled_to_a_private_place(duck: Duck) -> None:
    sql = "SELECT sum(a) AS s FROM (SELECT range AS a, hash(range) AS h FROM range(8000000) ORDER BY h, a LIMIT 7000000) AS t"
    assert (await duck.answer([], sql, 100)).num_rows == 1


async def test_a_query_that_takes_too_long_is_interrupted(duck: Duck) -> None:
    """INV-77: the same process answers the next one."""
    await duck.warm()
    (process,) = duck.processes
    with pytest.raises(QueryTimedOut, match=r"0\.5 seconds"):
        await duck.answer([], "SELECT count(*) FROM range(1000000000) AS a, range(1000000) AS b", 0.5)
    assert not process.dead
    assert (await duck.answer([], "SELECT 1 AS one", 30)).num_rows == 1
    assert duck.processes == (process,)


async def test_a_query_that_does_not_listen_is_killed_with_its_process(duck: Duck) -> None:
    """INV-77: work that cannot be interrupted ends all the same."""
    await duck.warm()
    (process,) = duck.processes
    with pytest.raises(QueryTimedOut):
        await duck.answer([], "SELECT levenshtein(repeat('a', 400000), repeat('b', 400000)) AS n", 0.5)
    assert process.dead
    assert process.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert (await duck.answer([], "SELECT 1 AS one", 30)).num_rows == 1


async def test_the_wait_for_a_process_counts_as_the_time_of_a_query(lake: Path) -> None:
    engine = Duck(DuckOptions(home=str(lake.parent / "query"), lake_root=str(lake), memory=MEMORY, processes=1))
    await engine.warm()
    (process,) = engine.processes
    endless = asyncio.create_task(engine.answer([], "SELECT count(*) FROM range(1000000000) a, range(1000000) b", 60))
    await process.asked.wait()
    with pytest.raises(QueryTimedOut):
        await engine.answer([], "SELECT 1 AS one", 0.2)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless
    assert (await engine.answer([], "SELECT 1 AS one", 30)).num_rows == 1
    await engine.close()


async def test_an_answer_that_is_being_given_when_time_is_up_is_not_mistaken_for_the_next(duck: Duck) -> None:
    await duck.warm()
    for seconds in (0.001, 0.005, 0.01, 0.02, 0.04, 0.08):
        with suppress(QueryTimedOut):
            await duck.answer([], "SELECT range AS n FROM range(100000)", seconds)
        assert (await duck.answer([], "SELECT 7 AS seven", 30)).to_pylist() == [{"seven": 7}]


async def test_a_process_that_dies_is_replaced(duck: Duck) -> None:
    await duck.warm()
    (process,) = duck.processes
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(QueryFailed):
        await duck.answer([], "SELECT 1 AS one", 30)
    assert (await duck.answer([], "SELECT 1 AS one", 30)).num_rows == 1


async def test_a_caller_who_goes_takes_the_query_along(duck: Duck) -> None:
    await duck.warm()
    (process,) = duck.processes
    asking = asyncio.create_task(
        duck.answer([], "SELECT count(*) FROM range(1000000000) AS a, range(1000000) AS b", 60)
    )
    await process.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert process.dead


async def test_processes_know_no_secrets(duck: Duck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_SECRET_KEY", "pa55word")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "pa55word")
    await duck.warm()
    (process,) = duck.processes
    assert b"pa55word" not in _environment(process.pid)


def _environment(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_nothing_is_left_when_the_engine_is_closed(lake: Path, tmp_path: Path) -> None:
    home = tmp_path / "query"
    engine = Duck(DuckOptions(home=str(home), lake_root=str(lake), memory=MEMORY))
    await engine.warm()
    (process,) = engine.processes
    assert len(list(home.iterdir())) == 1
    await engine.close()
    assert list(home.iterdir()) == []
    assert process.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_what_a_dead_process_left_is_removed_by_the_next(duck: Duck, lake: Path) -> None:
    await duck.warm()
    (process,) = duck.processes
    assert process.pid is not None
    (left,) = (lake.parent / "query").iterdir()
    os.kill(process.pid, signal.SIGKILL)
    await process.ended()
    other = Duck(DuckOptions(home=str(lake.parent / "query"), lake_root=str(lake), memory=MEMORY))
    await other.warm()
    assert not left.exists()
    await other.close()


@pytest.mark.timeout(240)
async def test_ordinary_analytics_run(tmp_path: Path) -> None:
    known = in_lake(tmp_path / "market")
    engine = Duck(DuckOptions(home=str(tmp_path), lake_root=str(tmp_path / "market"), memory=MEMORY))
    try:
        for one in blocks("ordinary.sql"):
            if one.engine == "spark":
                continue
            checked = read(one.sql, "duckdb")
            names = {name: f"__noetl_{number}" for number, name in enumerate(checked.datasets)}
            relations = [
                Relation(name=fixed, columns=known[name][0], paths=(known[name][1].path,), uniform=True)
                for name, fixed in names.items()
            ]
            table = await engine.answer(relations, checked.executable(names, tuple(known), 10_001), 60)
            assert table.num_rows, one.name
    finally:
        await engine.close()


def test_a_lake_is_only_read(lake: Path) -> None:
    from noetl.services.query.duck.instance import lake_dataset

    dataset = lake_dataset(Lake(str(lake)), ["own.parquet"], pa.schema([("a", pa.int64())]))
    assert dataset.to_table().to_pylist() == [{"a": 1}, {"a": 2}, {"a": 3}]
    system = dataset.filesystem
    attempts: list[Callable[[], object]] = [
        lambda: system.delete_file("own.parquet"),
        lambda: system.open_output_stream("new.parquet"),
    ]
    for attempt in attempts:
        with pytest.raises(PermissionError):
            attempt()
