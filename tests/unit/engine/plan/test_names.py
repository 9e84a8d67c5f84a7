"""How the results of steps look in templates."""

from __future__ import annotations

import pytest

from noetl.engine.plan.planned import reads_of
from noetl.engine.plan.state import Result
from noetl.engine.plan.template_names import view

COUNTS = {"total": 4, "completed": 3, "failed": 1, "frames": 2}


@pytest.mark.parametrize("data", [COUNTS, {**COUNTS, "results": [1, 2, None, 4]}])
def test_the_counts_of_a_loop_are_also_its_stats(data: dict[str, object]) -> None:
    result = Result(status="error", data=data)
    assert view(result)["stats"] == {"total": 4, "completed": 3, "failed": 1}
    assert result.data == data, "what is recorded stays as it is"


@pytest.mark.parametrize("data", [{"total": 4}, {**COUNTS, "more": 1}, {**COUNTS, "stats": "own"}, None, 7])
def test_other_results_have_no_stats_but_their_own(data: object) -> None:
    shown = view(Result(status="ok", data=data)).get("stats")
    assert shown == (data.get("stats") if isinstance(data, dict) else None)


def test_stats_are_read_without_what_the_rows_came_to() -> None:
    assert reads_of("{{ each.stats.failed > 0 }}").rows == frozenset()
    assert reads_of("{{ each.stats.failed > 0 and each.results }}").rows == {"each"}
    assert reads_of("{{ fetch.stats }}").data == {"fetch"}, "a large result may have a field of that name"
