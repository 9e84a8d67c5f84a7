"""The PFT workload ends with exact numbers: those of the functions, of the playbooks and of the bare script."""

from __future__ import annotations

from typing import Any

import pytest
from bench.pft import tenth
from bench.pft_floor import Sizes, WrongTotals, run_floor
from examples.pft import records
from examples.pft.make_variants import FRAME_COMMIT, ROW_COMMIT, frame_commit
from examples.pft.mock_api import serve
from ruamel.yaml import YAML

from noetl.language.playbook.checks.all_checks import problems_of
from noetl.language.playbook.parse import parse

FOLDER = ROW_COMMIT.parent
PLAYBOOKS = ("pft_s3.yaml", "pft_s3_frame_commit.yaml", "pft_s1.yaml")


def _read(name: str) -> Any:
    return YAML(typ="safe").load(FOLDER / name)


def test_the_first_pages_of_all_facilities_add_up_to_the_known_totals() -> None:
    totals = records.expected(10, 1000, "s3")
    assert totals.as_workload() == {**dict.fromkeys(records.DATA_TYPES, 10_000), "mds": 75_174}
    assert totals.mds_by_facility == (7573, 7461, 7473, 7605, 7484, 7434, 7587, 7572, 7513, 7472)
    assert (totals.requests, totals.stages, totals.frames) == (125_174, 60, 2_509)


def test_all_pages_of_all_facilities_add_up_to_the_known_totals() -> None:
    totals = records.expected(10, 1000, "s1")
    pages = {"assessments": 29_898, "conditions": 19_907, "medications": 25_024}
    assert totals.as_workload() == {**pages, "vital_signs": 10_000, "demographics": 10_000, "mds": 224_443}
    assert totals.mds_by_facility == (22630, 22360, 22475, 22453, 22578, 22362, 22482, 22459, 22123, 22521)
    assert (totals.requests, totals.stages, totals.frames) == (319_272, 60, 5_495)


@pytest.mark.parametrize(("shape", "numbers"), [("s1", (2_340, 3_305, 57)), ("s3", (756, 1_256, 26))])
def test_a_small_run_has_its_known_totals(shape: records.Shape, numbers: tuple[int, int, int]) -> None:
    totals = records.expected(1, 100, shape)
    assert (totals.mds, totals.requests, totals.frames) == numbers


def test_patients_of_a_facility_follow_those_of_the_one_before() -> None:
    two, one = records.expected(2, 20, "s3"), records.expected(1, 40, "s3")
    assert two.as_workload() == one.as_workload()
    assert sum(two.mds_by_facility) == one.mds


def test_the_counted_assessments_are_those_the_records_name() -> None:
    named = [
        name
        for patient_id in range(1, 21)
        for page in range(1, records.page_count(patient_id, "assessments") + 1)
        for name in records.record(patient_id, "assessments", page)["mdsAssessmentIds"]
    ]
    assert len(set(named)) == len(named) == records.expected(1, 20, "s1").mds


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_expects_the_totals_of_its_own_sizes(name: str) -> None:
    workload = _read(name)["workload"]
    shape: records.Shape = "s1" if "s1" in name else "s3"
    totals = records.expected(workload["num_facilities"], workload["patients_per_facility"], shape)
    assert workload["expected"] == totals.as_workload()


def test_the_variants_differ_in_their_commits_alone() -> None:
    assert FRAME_COMMIT.read_text() == frame_commit(ROW_COMMIT.read_text())
    by_row, by_frame = _read(ROW_COMMIT.name), _read(FRAME_COMMIT.name)
    commits = [step["loop"]["spec"]["frame"].pop("commit") for step in by_frame["workflow"] if "loop" in step]
    assert commits == ["frame"] * 6
    assert by_row["workflow"] == by_frame["workflow"]
    assert by_row["workload"] == by_frame["workload"]


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_every_step_leads_somewhere_that_exists(name: str) -> None:
    workflow = _read(name)["workflow"]
    steps = {step["step"] for step in workflow}
    targets = {arc["step"] for step in workflow for arc in step.get("next", {}).get("arcs", [])}
    assert targets == steps - {"start"}


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_nothing_is_wrong_with_a_playbook(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert problems_of(text, file=name, strict=True) == []
    assert len([step for step in parse(text, file=name).playbook.steps.values() if step.loop is not None]) == 6


def test_growth_is_measured_from_a_tenth_of_the_rows() -> None:
    assert tenth(Sizes(10, 1000, 4, 8)) == Sizes(1, 1000, 4, 8)
    assert tenth(Sizes(1, 100)) == Sizes(1, 10)


async def test_the_bare_script_ends_with_exact_totals(owner_url: str) -> None:
    async with serve() as api_url:
        floor = await run_floor(owner_url, api_url, Sizes(1, 20, max_in_flight=2, row_concurrency=3, frame_rows=7))
    totals = records.expected(1, 20, "s3", frame_rows=7)
    assert floor.requests == totals.requests
    assert floor.frames >= totals.frames
    assert floor.seconds > 0


async def test_the_bare_script_does_not_pass_with_a_total_that_is_off(
    owner_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as api_url:
        monkeypatch.setattr("bench.pft_floor.expected", lambda *_: records.expected(1, 3, "s1"))
        with pytest.raises(WrongTotals):
            await run_floor(owner_url, api_url, Sizes(1, 3))
