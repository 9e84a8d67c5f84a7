"""One Spark session of this process, and events as rows of the lake."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.spark.plain_session import plain_session

from noetl.model.event import Event
from noetl.spark.event_lake.facts.refresh import SETTINGS
from noetl.spark.session.session import SESSION
from noetl.spark.source.columns import ARROW_SCHEMA, JSON, NAMES

Lake = Callable[[Iterable[Event]], DataFrame]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with plain_session(tmp_path_factory.mktemp("spark"), {}) as session:
        yield session


@pytest.fixture
def lake(spark: SparkSession) -> Lake:
    """Makes rows of the lake out of events, in a session for facts."""

    def rows(events: Iterable[Event]) -> DataFrame:
        own = spark.newSession()
        for name, value in (SESSION | SETTINGS | {"spark.sql.shuffle.partitions": "1"}).items():
            own.conf.set(name, value)
        return own.createDataFrame(pa.Table.from_pylist([_row(event) for event in events], schema=ARROW_SCHEMA))

    return rows


def _row(event: Event) -> dict[str, Any]:
    row = {name: getattr(event, name) for name in NAMES}
    for name in JSON:
        if row[name] is not None:
            row[name] = orjson.dumps(msgspec.to_builtins(row[name])).decode()
    return row


@pytest.fixture(autouse=True)
def _quiet_sockets() -> Iterator[None]:
    # Spark's own Python leaves sockets to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
