"""What is decided about views without a server: batches, checkpoints, differences, tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from noetl.errors import ConfigError, Conflict, Corrupt, InputError
from noetl.language.view.document import parse_view
from noetl.model.mark import Mark
from noetl.model.stream import Scope
from noetl.services.views.barriers import Barrier, Batch, admit
from noetl.services.views.checkpoints import checkpoint_of
from noetl.services.views.sinks.table import quoted
from noetl.services.views.verification import compared
from noetl.services.views.versions import Version
from noetl.spark.views.late_events import read_offsets

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def mark(position: int) -> str:
    return Mark((position,) * 16).token()


def batch(number: int, since: int, upto: int, checkpoint: str = "c") -> Batch:
    return Batch(batch=number, since=mark(since), mark=mark(upto), checkpoint=checkpoint)


def barrier(number: int, since: int, upto: int) -> Barrier:
    return Barrier(
        batch=number, since=mark(since), mark=mark(upto), watermark=None, late=0, late_total=0, changed=0, removed=0,
        checkpoint="c", at=NOW,
    )  # fmt: skip


def version(text: str = "") -> Version:
    view = "kind: View\nname: v\nsource: {events: a.b}\nsql: SELECT a FROM events\nkeys: a\n" + text
    return Version(
        version_id="b1", view="v", build=1, digest="d", code_digest="", definition=parse_view(view).definition,
        bundle_ref=None, sink="postgres", target_mark=mark(0), status="building", attempt=0, worker=None,
        lease_token=None, is_held=False, available_at=None, error=None, deployed_by="", deployed_at=NOW,
        activated_at=None, ended_at=None, version=1,
    )  # fmt: skip


def test_a_batch_is_applied_once_and_never_over_a_gap() -> None:
    """INV-95."""
    assert admit(batch(0, 0, 5), None, "v") == "apply"
    assert admit(batch(1, 5, 9), barrier(0, 0, 5), "v") == "apply"
    assert admit(batch(0, 0, 5), barrier(0, 0, 5), "v") == "covered"
    assert admit(batch(1, 2, 9), barrier(0, 0, 5), "v") == "apply"
    with pytest.raises(Conflict, match="begins after"):
        admit(batch(2, 6, 9), barrier(0, 0, 5), "v")
    with pytest.raises(Conflict, match="no barrier"):
        admit(batch(3, 6, 9), None, "v")
    with pytest.raises(Conflict, match="another checkpoint"):
        admit(batch(1, 5, 9, "d"), barrier(0, 0, 5), "v")


def test_a_checkpoint_that_executors_cannot_see_is_refused() -> None:
    """INV-97."""
    scope = Scope("acme", "care")
    assert checkpoint_of("/data", "local[*]", scope, version()) == "/data/acme/care/v/b1"
    assert checkpoint_of("hdfs://n/data/", "spark://m:1", scope, version()) == "hdfs://n/data/acme/care/v/b1"
    with pytest.raises(ConfigError, match="directory of this machine") as refused:
        checkpoint_of("/data", "spark://m:1", scope, version())
    assert "shared: true" in str(refused.value.hint)
    shared = version("checkpoint: {path: /mnt/all, shared: true}\n")
    assert checkpoint_of("/data", "spark://m:1", scope, shared) == "/mnt/all/acme/care/v/b1"


def test_what_spark_wrote_ahead_is_read() -> None:
    offset = json.dumps({"mark": mark(3)})
    assert read_offsets(f'v1\n{{"batchWatermarkMs":0}}\n{offset}') == (mark(3), None)
    told = read_offsets(f'v1\n{{"batchWatermarkMs":1767225600000}}\n{offset}')
    assert told == (mark(3), NOW)
    for wrong in ("", "v2\n{}\n{}", f"v1\n{{}}\n{offset}\n{offset}"):
        with pytest.raises(Corrupt):
            read_offsets(wrong)


def test_differences_name_the_row_that_differs() -> None:
    """INV-94."""
    expected = {"a": {"n": 1, "x": [0.1 + 0.2]}, "b": {"n": 2}, "c": {"n": 3}}
    found = {"a": {"n": 1, "x": [0.3]}, "b": {"n": 5}, "d": {"n": 4}}
    told = [(one.key, one.expected, one.found) for one in compared(expected, found)]
    assert told == [("b", {"n": 2}, {"n": 5}), ("c", {"n": 3}, None), ("d", None, {"n": 4})]
    assert len(compared({"a": {"n": 1}}, {"a": {"n": "1"}})) == 1


def test_names_of_columns_cannot_smuggle_sql() -> None:
    assert quoted("amount") == '"amount"'
    with pytest.raises(InputError):
        quoted('a" int); DROP TABLE x; --')


def test_a_definition_survives_the_ledger() -> None:
    own = version("checkpoint: {shared: true}\nspark: {spark.sql.shuffle.partitions: '2'}\n").definition
    assert msgspec.convert(msgspec.to_builtins(own), type(own)) == own
