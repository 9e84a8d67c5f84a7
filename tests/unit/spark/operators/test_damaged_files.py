"""Jobs refuse inputs that are not what was committed, natively and through Arrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from noetl.spark.drivers.protocol import WorkResult
from noetl.testing.attacks import files as attacks

both_ways = pytest.mark.parametrize("rig", ["native", "arrow"], indirect=True)
SUM = {"sql": "SELECT sum(amount) AS amount FROM orders"}


def _built(rig: Any) -> tuple[Any, Path]:
    """Build an input by Spark itself, and return it with its file."""
    given = rig.taking("given", rig.part("id bigint;amount int", [(n, n) for n in range(50)]))
    (made,) = rig.ok(rig.work("spark_sql", {"sql": "SELECT * FROM given"}, [given]))
    (write,) = made.writes
    (entry,) = write.files
    return rig.taking(
        "orders", rig.keep(write.partition_key, write.schema, write.files)
    ), rig.lake.directory / entry.path


def _summed(rig: Any, orders: Any) -> WorkResult:
    (result,) = rig.run(rig.work("spark_sql", SUM, [orders]))
    return result


@both_ways
def test_an_input_that_is_not_what_was_committed_is_refused(rig: Any) -> None:
    """INV-183."""
    orders, file = _built(rig)
    whole = file.read_bytes()
    for name, attack in attacks.VISIBLE.items():
        attack(file)
        result = _summed(rig, orders)
        assert (name, result.status, result.error_kind, result.retryable) == (name, "error", "damaged", False)
        assert file.name in result.error
        file.write_bytes(whole)
    assert rig.rows(*_summed(rig, orders).writes) == [(1225,)]


@both_ways
def test_a_page_that_fails_its_checksum_fails_the_job(rig: Any) -> None:
    """INV-184: a disk that loses a bit changes no time, so that nothing but the page itself tells."""
    orders, file = _built(rig)
    attacks.flip_a_bit(file, column="amount", unseen=True)
    assert pq.read_table(file).column("amount").to_pylist() != list(range(50))
    result = _summed(rig, orders)
    assert (result.status, result.error_kind, result.retryable) == ("error", "damaged", False)
    assert "checksum" in result.error
    assert file.name in result.error


@both_ways
def test_a_footer_that_lost_a_bit_fails_the_job(rig: Any) -> None:
    """INV-184: no page checksum covers it, and a column that is not named any more would be null."""
    orders, file = _built(rig)
    attacks.flip_a_bit_of_the_footer(file, unseen=True)
    result = _summed(rig, orders)
    assert (result.status, result.error_kind, result.retryable) == ("error", "damaged", False)
    assert file.name in result.error


def test_no_setting_of_a_job_leaves_out_what_is_damaged(rig: Any) -> None:
    """INV-184: Spark would read the rows of the other files, and the job commit them."""
    orders, file = _built(rig)
    attacks.flip_a_bit(file, column="amount", unseen=True)
    lenient = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    (result,) = rig.run(rig.work("spark_sql", SUM, [orders], spark=lenient))
    assert (result.status, result.error_kind, result.retryable) == ("error", "damaged", False)


def test_hadoop_leaves_no_checksums_of_its_own_beside_files(rig: Any) -> None:
    """INV-184: one that is damaged would fail every job for good, while the file it is of is what was committed."""
    orders, file = _built(rig)
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    assert rig.rows(*_summed(rig, orders).writes) == [(1225,)]


@both_ways
def test_a_file_restored_from_a_copy_is_read_again(rig: Any) -> None:
    orders, file = _built(rig)
    attacks.touch(file)
    assert rig.rows(*_summed(rig, orders).writes) == [(1225,)]


def test_a_manifest_without_stamps_is_checked_by_size(rig: Any) -> None:
    orders, file = _built(rig)
    (part,) = orders.parts
    manifest = rig.manifests[part.manifest.sha256]
    old = [msgspec.structs.replace(entry, stamp="") for entry in manifest.files]
    orders = rig.taking("orders", rig.keep(part.partition_key, manifest.schema, old))
    attacks.touch(file)
    assert rig.rows(*_summed(rig, orders).writes) == [(1225,)]
    attacks.cut_short(file)
    assert _summed(rig, orders).error_kind == "damaged"
