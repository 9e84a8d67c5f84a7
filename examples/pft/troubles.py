"""Endpoints of the mock API that fail, wait or count on purpose: what retries, time-outs and limits are tried on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

from examples.pft.http_server import Answer, Request
from examples.pft.limiter import TOO_MANY, Limiter
from examples.pft.records import number

FORCED = {"429": 429, "500": 500, "503": 503, "auth": 401, "403": 403, "404": 404}
LONGEST_DELAY = 300.0


@dataclass
class Overlap:
    """How many probes of a label ran at once."""

    active: int = 0
    max_active: int = 0
    total: int = 0


class Troubles:
    """The endpoints that remember something between requests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: set[int] = set()
        self._limiters: dict[tuple[str, int], Limiter] = {}
        self._overlaps: dict[str, Overlap] = {}

    def flaky(self, request: Request) -> Answer:
        """Fail the first try at each page listed in `fail_on`, then serve it."""
        page = int(request.query.get("page", 1))
        listed = request.query.get("fail_on", "")
        if str(page) in listed.split(",") and page not in self._failed:
            self._failed.add(page)
            return Answer({"detail": f"page {page} fails once"}, 500)
        return Answer({"data": [{"id": page}], "paging": {"hasMore": page < 4, "page": page, "total": 4}})

    def reset_flaky(self, _: Request) -> Answer:
        """Let every listed page fail once more."""
        self._failed.clear()
        return Answer({"status": "reset"})

    def errors(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer with the error that is asked for; a time-out takes `seconds`, 30 unless told."""
        wanted = request.query.get("error_type", "500")
        if wanted == "timeout":
            return after(float(request.query.get("seconds", 30)), Answer({"detail": "late"}, 504))
        if wanted == "429":
            return TOO_MANY
        status = FORCED.get(wanted)
        if status is None:
            return Answer({"detail": f"error_type is one of {', '.join(FORCED)}, timeout"}, 400)
        return Answer({"detail": f"forced {status}"}, status)

    def rate_limited(self, request: Request) -> Answer:
        """Serve at most `requests_per_second`, each rate with a window of its own."""
        rate = int(request.query.get("requests_per_second", 2))
        return Answer({"status": "ok"}) if self._admits("plain", rate) else TOO_MANY

    def _admits(self, endpoint: str, rate: int) -> bool:
        return self._limiters.setdefault((endpoint, rate), Limiter(rate, self._clock)).admits()

    def patient_records(self, request: Request) -> Answer | Awaitable[Answer]:
        """Serve slow pages of about 100 KB: 2 to 5 a patient, 2 to 4 seconds each, 50 a second, all by the query."""
        query = request.query
        if not self._admits("records", int(query.get("rate_limit", 50))):
            return TOO_MANY
        patient_id, page = query.get("patientId", "1"), int(query.get("page", 1))
        spread = number(f"{patient_id}:records")
        total = 2 + spread % 4
        if not 1 <= page <= total:
            return Answer({"detail": "past the last page"}, 404)
        shortest, longest = float(query.get("min_delay", 2)), float(query.get("max_delay", 4))
        body = {
            "data": [{"patientId": patient_id, "page": page, "notes": "x" * int(query.get("payload_kb", 100)) * 1024}],
            "paging": {"hasMore": page < total, "page": page, "total": total},
        }
        return after(shortest + (longest - shortest) * (spread % 101) / 100, Answer(body))

    async def probe(self, request: Request) -> Answer:
        """Stay for `delay_seconds` and count who else of the same `label` is there."""
        delay = float(request.query.get("delay_seconds", 1))
        if not 0 <= delay <= LONGEST_DELAY:
            return Answer({"detail": f"delay_seconds is 0 to {LONGEST_DELAY:.0f}"}, 400)
        label = request.query.get("label", "default")
        overlap = self._overlaps.setdefault(label, Overlap())
        overlap.active += 1
        overlap.total += 1
        overlap.max_active = max(overlap.max_active, overlap.active)
        try:
            await asyncio.sleep(delay)
        finally:
            overlap.active -= 1
        return Answer({"label": label, "max_active": overlap.max_active})

    def probe_stats(self, _: Request) -> Answer:
        """Tell the counts of every label."""
        return Answer({label: asdict(overlap) for label, overlap in self._overlaps.items()})

    def reset_probe(self, _: Request) -> Answer:
        """Forget the counts."""
        self._overlaps.clear()
        return Answer({"status": "reset"})


async def after(seconds: float, answer: Answer) -> Answer:
    """Give an answer late."""
    await asyncio.sleep(seconds)
    return answer
