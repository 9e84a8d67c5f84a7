"""`append` with a key: no key twice, whatever stands already, however many rows are compared."""

from __future__ import annotations

import pytest

from noetl.spark.drivers.protocol import MakeUnique
from noetl.spark.operators import make_unique, uniqueness

PEOPLE = "id bigint;name string"


@pytest.fixture(params=["here", "in spark"])
def compared(request, monkeypatch):
    if request.param == "in spark":
        monkeypatch.setattr(uniqueness.unique_write, "__kwdefaults__", {"few": 0})
    return request.param


def appending(rig, given, *standing, key=("id",)):
    target = rig.target(update_strategy="append", unique_key=key, parts=standing)
    return rig.work("spark_sql", {"sql": "SELECT * FROM given"}, [rig.taking("given", given)], [target])


def test_the_first_row_of_a_key_stays_and_standing_keys_win(rig, compared):
    standing = rig.part(PEOPLE, [(1, "old"), (None, "none")], version=4)
    given = rig.part(PEOPLE, [(1, "new"), (2, "b"), (2, "a"), (2, None), (3, "c"), (None, "x")], files=2)
    (result,) = rig.ok(appending(rig, given, standing))
    (write,) = result.writes
    assert rig.rows(write) == [(2, None), (3, "c")]
    assert write.base_version == 4


def test_rows_without_a_second_one_are_left_as_they_were_written(rig, compared):
    standing = rig.part(PEOPLE, [(7, "old")], version=1)
    (result,) = rig.ok(appending(rig, rig.part(PEOPLE, [(1, "a"), (8, "b")]), standing))
    assert rig.rows(*result.writes) == [(1, "a"), (8, "b")]
    assert all(entry.path.rpartition("/")[2].startswith("part-00000-") for entry in result.writes[0].files)


def test_nothing_is_left_when_every_key_stands(rig, compared):
    given = rig.part(PEOPLE, [(1, "a")])
    (result,) = rig.ok(appending(rig, given, given))
    assert (result.writes[0].files, result.metrics["rows"]) == ((), 0)


def test_keys_that_landed_meanwhile_are_dropped_from_the_write(rig, compared):
    """INV-57."""
    work = appending(rig, rig.part(PEOPLE, [(1, "mine"), (2, "mine")]))
    (result,) = rig.ok(work)
    landed = rig.part(PEOPLE, [(2, "theirs")], version=1)
    message = MakeUnique(work=work, write=result.writes[0], landed=rig.manifests[landed.manifest.sha256])
    again = make_unique(rig.session, message, rig.lake)
    assert again.error is None
    assert rig.rows(*again.writes) == [(1, "mine")]
    assert again.writes[0].base_version == 1


def test_files_whose_statistics_exclude_every_key_are_not_opened(rig, compared):
    far = rig.part(PEOPLE, [(100, "far")], version=1)
    for entry in rig.manifests[far.manifest.sha256].files:
        (rig.lake.directory / entry.path).unlink()
    (result,) = rig.ok(appending(rig, rig.part(PEOPLE, [(1, "a")]), far))
    assert rig.rows(*result.writes) == [(1, "a")]


def test_a_key_that_is_no_column_is_refused_by_name(rig):
    (result,) = rig.run(appending(rig, rig.part(PEOPLE, [(1, "a")]), key=("idd",)))
    assert "unique_key of output 0 names the column 'idd'" in result.error


def test_two_equal_keys_of_a_map_column_choose_the_same_row_each_time(rig, compared):
    schema = "id bigint;q map<string,int>"
    for rows in ([(1, [("b", 1)]), (1, [("a", 1)])], [(1, [("a", 1)]), (1, [("b", 1)])]):
        (result,) = rig.ok(appending(rig, rig.part(schema, rows)))
        assert rig.rows(*result.writes) == [(1, [("a", 1)])]
