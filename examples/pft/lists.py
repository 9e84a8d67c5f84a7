"""Collections of the mock API that are there to be paged through, to be heavy or to point at each other. All pure."""

from __future__ import annotations

import base64
from typing import Any

from examples.pft.http_server import Answer, Request
from examples.pft.records import number

LISTED = 35
CHAINED = 382
MOST_CHAINED = 20_000
HEAVY = 100


def by_page(request: Request) -> Answer:
    """Serve `/assessments`: 35 items by `page` and `pageSize`."""
    page, size = int(request.query.get("page", 1)), int(request.query.get("pageSize", 10))
    start = (page - 1) * size
    paging = {"hasMore": start + size < LISTED, "page": page, "pageSize": size, "total": LISTED}
    return Answer({"data": _items("assessment", start, size), "paging": paging})


def by_offset(request: Request) -> Answer:
    """Serve `/users`: 35 items by `offset` and `limit`."""
    offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 10))
    has_more = offset + limit < LISTED
    return Answer({"users": _items("user", offset, limit), "has_more": has_more, "offset": offset, "total": LISTED})


def by_cursor(request: Request) -> Answer:
    """Serve `/events`: 35 items by `limit` and an opaque `cursor`."""
    limit, given = int(request.query.get("limit", 10)), request.query.get("cursor")
    start = int(base64.urlsafe_b64decode(given)) if given else 0
    after = start + limit
    cursor = base64.urlsafe_b64encode(str(after).encode()).decode() if after < LISTED else None
    return Answer({"events": _items("event", start, limit), "next_cursor": cursor})


def _items(kind: str, start: int, size: int) -> list[dict[str, Any]]:
    return [{"id": place + 1, "name": f"{kind}-{place + 1}"} for place in range(start, min(start + size, LISTED))]


def heavy(request: Request) -> Answer:
    """Serve 100 items of `payload_kb` each, by `page` and `pageSize`."""
    kilobytes = int(request.query.get("payload_kb", 1))
    page, size = int(request.query.get("page", 1)), int(request.query.get("pageSize", 10))
    start = (page - 1) * size
    items = [{"id": place + 1, "payload": "x" * kilobytes * 1024} for place in range(start, min(start + size, HEAVY))]
    return Answer(
        {"data": items, "paging": {"hasMore": start + size < HEAVY, "page": page, "pageSize": size, "total": HEAVY}}
    )


def heavy_stats(request: Request) -> Answer:
    """Say how large the heavy collection is."""
    kilobytes = int(request.query.get("payload_kb", 1))
    return Answer({"items": HEAVY, "payload_kb": kilobytes, "total_kb": HEAVY * kilobytes})


def chain_items(request: Request) -> Answer:
    """Serve items that refer to their detail: linked by address, in windows, or with the detail put in."""
    total = int(request.query.get("total", CHAINED))
    mode = request.query.get("ref_mode", "linked")
    if not 0 <= total <= MOST_CHAINED or mode not in ("linked", "windowed", "expanded"):
        return Answer({"detail": "total up to 20000; ref_mode linked, windowed or expanded"}, 400)
    start, size = 0, total
    if mode == "windowed":
        start, size = int(request.query.get("offset", 0)), int(request.query.get("limit", 50))
    last = min(start + size, total)
    items: list[dict[str, Any]] = []
    for place in range(start, last):
        item = {"id": place + 1, "ref": f"/api/v1/reference-chain/detail/{place + 1}"}
        items.append(item | {"detail": _chained(place + 1)} if mode == "expanded" else item)
    return Answer({"items": items, "total": total, "ref_mode": mode, "next_offset": last if last < total else None})


def chain_detail(request: Request) -> Answer:
    """Serve the detail of an item of the chain."""
    place = request.path.rpartition("/")[2]
    return Answer(_chained(int(place))) if place.isdecimal() else Answer({"detail": "no such item"}, 404)


def _chained(place: int) -> dict[str, Any]:
    return {"id": place, "value": number(f"chain:{place}") % 1000}
