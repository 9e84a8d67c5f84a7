"""What the mock API knows about patients, as pure functions of ids: the same id always gives the same record.

Also what a whole run must come to: `expected` adds up what the API will serve. Nothing here is random or stored.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import md5
from typing import Any, Literal

Shape = Literal["s1", "s3"]
"""s1 reads all pages of a patient, s3 the first page alone."""

PAGES = {"assessments": (2, 4), "conditions": (1, 3), "medications": (2, 3), "vital_signs": (1, 1)}
"""Fewest and most pages of each kind of paged data."""

DATA_TYPES = (*PAGES, "demographics")
FIRST_NAMES = ("Ada", "Ben", "Cleo", "Dara", "Emil", "Fay", "Gus", "Hana")
LAST_NAMES = ("Ash", "Birch", "Cedar", "Doyle", "Elm", "Frost", "Grey", "Holt")


def number(text: str) -> int:
    """Return the MD5 of a text as a number: a fixed, even spread, not a secret."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest())


def page_count(patient_id: int, data_type: str) -> int:
    """Return how many pages a patient has of a kind of data."""
    fewest, most = PAGES[data_type]
    return fewest if fewest == most else fewest + number(f"{patient_id}:{data_type}") % (most - fewest + 1)


def mds_count(patient_id: int, page: int, index: int = 0) -> int:
    """Return how many MDS assessments a record of the assessments names."""
    return 5 + (number(f"{patient_id}:assessments:{page}") + index) % 6


def record(patient_id: int, data_type: str, page: int, index: int = 0) -> dict[str, Any]:
    """Return one record of a page."""
    made: dict[str, Any] = {
        "id": f"{data_type}-{patient_id}-p{page}-{index}",
        "patientId": patient_id,
        "dataType": data_type,
        "value": number(f"{patient_id}:{data_type}:{page}:{index}") % 1000,
    }
    if data_type == "assessments":
        stem = f"MDS-{patient_id}-p{page}-{index}"
        made["mdsAssessmentIds"] = [f"{stem}-{place:02d}" for place in range(mds_count(patient_id, page, index))]
    return made


def page_of(patient_id: int, data_type: str, page: int) -> dict[str, Any] | None:
    """Return a page of a patient's data, which always holds one record, or None past the last."""
    total = page_count(patient_id, data_type)
    if not 1 <= page <= total:
        return None
    return {
        "data": [record(patient_id, data_type, page)],
        "paging": {"hasMore": page < total, "page": page, "pageSize": 1, "total": total},
    }


def demographics(patient_id: int) -> dict[str, Any]:
    """Return who a patient is."""
    spread = number(f"{patient_id}:demographics")
    return {
        "patientId": patient_id,
        "firstName": FIRST_NAMES[spread % 8],
        "lastName": LAST_NAMES[spread // 8 % 8],
        "dob": f"{1930 + spread % 60}-{1 + spread % 12:02d}-{1 + spread % 28:02d}",
        "gender": ("female", "male")[spread % 2],
        "status": "active",
    }


def assessment(assessment_id: str) -> dict[str, Any]:
    """Return the detail of an MDS assessment: three sections of three questions."""
    spread = number(assessment_id)
    sections = [
        {
            "section": letter,
            "questions": [
                {"id": f"{letter}{place}", "answer": (spread >> (3 * (3 * row + place))) % 5} for place in range(3)
            ],
        }
        for row, letter in enumerate("ABC")
    ]
    return {"assessmentId": assessment_id, "sections": sections}


@dataclass(frozen=True)
class Totals:
    """Exact numbers of a run that went well: rows per table, requests and, at so many rows a frame, frames."""

    assessments: int
    conditions: int
    medications: int
    vital_signs: int
    demographics: int
    mds: int
    mds_by_facility: tuple[int, ...]
    requests: int
    frames: int
    stages: int

    def as_workload(self) -> dict[str, Any]:
        """Return what the playbooks take as `expected`."""
        names = (*DATA_TYPES, "mds")
        return {name: value for name, value in asdict(self).items() if name in names}


def expected(facilities: int, patients: int, shape: Shape, frame_rows: int = 50) -> Totals:
    """Add up what so many facilities with so many patients each will be served."""
    pages = dict.fromkeys(PAGES, 0)
    by_facility = [0] * facilities
    for facility in range(facilities):
        for patient_id in range(facility * patients + 1, (facility + 1) * patients + 1):
            for data_type in PAGES:
                last = page_count(patient_id, data_type) if shape == "s1" else 1
                pages[data_type] += last
                if data_type == "assessments":
                    by_facility[facility] += sum(mds_count(patient_id, page) for page in range(1, last + 1))
    people, mds = facilities * patients, sum(by_facility)
    per_cursor = -(-patients // frame_rows)
    return Totals(
        **pages,
        demographics=people,
        mds=mds,
        mds_by_facility=tuple(by_facility),
        requests=sum(pages.values()) + people + mds,
        frames=len(DATA_TYPES) * per_cursor * facilities + sum(-(-count // frame_rows) for count in by_facility),
        stages=(len(DATA_TYPES) + 1) * facilities,
    )
