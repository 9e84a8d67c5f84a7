"""How views are shown: versions, barriers and rows go in, tables and facts come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noetl.cli.terminal.tables import rendered
from noetl.errors import NoetlError
from noetl.model.mark import Mark
from noetl.model.stream import Scope

if TYPE_CHECKING:
    from noetl.runtime.assembly.views import ViewParts
    from noetl.services.views.verification import Verified
    from noetl.services.views.versions import Version


async def facts_of(parts: ViewParts, scope: Scope, version: Version, head: Mark) -> dict[str, Any]:
    """Return all that is known of a version, its barrier among it; a sink that does not answer is told of."""
    facts: dict[str, Any] = {
        "view": version.view,
        "version": version.version_id,
        "build": version.build,
        "status": version.status,
        "sink": version.sink,
        "runner": version.worker if version.lease_token else None,
        "attempt": version.attempt,
        "error": version.error,
        "deployed_at": version.deployed_at,
        "activated_at": version.activated_at,
    }
    sink = parts.around.sink_of(scope, version, None)
    try:
        barrier = await sink.standing()
    except NoetlError as problem:
        return facts | {"error": facts["error"] or problem.message}
    finally:
        await sink.close()
    if barrier is None:
        return facts | {"mark": None, "behind": sum(head.positions)}
    reached = Mark.parse(barrier.mark)
    return facts | {
        "mark": barrier.mark,
        "barrier": barrier.batch,
        "barrier_at": barrier.at,
        "watermark": barrier.watermark,
        "late": barrier.late_total,
        "behind": sum(last - own for last, own in zip(head.positions, reached.positions, strict=True) if last > own),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return views as a table."""
    return rendered(
        ("view", "version", "status", "sink", "behind", "late", "run by", "mark"),
        [
            (
                one["view"],
                one["version"][:8],
                one["status"],
                one["sink"],
                str(one.get("behind", "")),
                str(one.get("late", 0)),
                one["runner"] or "nobody",
                one.get("mark") or "none yet",
            )
            for one in found
        ],
    )


def text(facts: dict[str, Any]) -> str:
    """Return all that is known of a version, a line each."""
    told = [(name, value) for name, value in facts.items() if value is not None]
    return "".join(f"{name.replace('_', ' '):<13} {value}\n" for name, value in told)


def rows_text(found: dict[str, Any]) -> str:
    """Return the rows of a view as a table, with the mark they cover."""
    rows: list[dict[str, Any]] = found["rows"]
    said = f"{found['total']} rows of {found['view']} ({found['status']}), as of {found['mark'] or 'nothing yet'}\n"
    if not rows:
        return said
    columns = [*found["keys"], *(name for name in rows[0] if name not in found["keys"])]
    return rendered(columns, [[_cell(row.get(name)) for name in columns] for row in rows]) + said


def verified_text(found: Verified) -> str:
    """Return what came of a verification."""
    late = f", {found.late} events came too late" if found.late else ""
    if not found.differences:
        return f"{found.view}: {found.rows} rows equal their recomputation at {found.mark}{late}"
    lines = [f"{found.view}: {found.differences} rows differ from their recomputation at {found.mark}{late}"]
    for one in found.first:
        lines.append(f"  {one.key}")
        lines.append(f"    expected {_shown(one.expected)}")
        lines.append(f"    found    {_shown(one.found)}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    return "no row" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
