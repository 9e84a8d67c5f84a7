"""The `spark` kind: loops' results as DataFrames, wherever they are kept, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.spark.frames.conftest import ran

from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

pytestmark = pytest.mark.timeout(300)

REDUCE = """
    workload: {rows: 0}
    workflow:
      - step: each
        loop: {in: "{{ range(rows) | list }}", iterator: n, spec: {mode: parallel, frame: {max_rows: 100}}}
        tool:
          kind: python
          input: {n: "{{ iter.n }}"}
          code: "result = {'ward': 'ABC'[n % 3], 'cost': n / 2, 'note': 'x' * 100}"
        next: {arcs: [{step: reduce}]}
      - step: reduce
        tool:
          kind: spark
          input: {frames: "{{ each }}", least: 1}
          TASK
"""
SQL = 'sql: "SELECT ward, count(*) AS n, sum(cost) AS cost FROM frames WHERE _index >= :least GROUP BY ward ORDER BY ward"'
CODE = """code: |
            from pyspark.sql.functions import count, sum

            def main(session, frames, least):
                wards = frames.where(frames._index >= least).groupBy("ward")
                return wards.agg(count("*").alias("n"), sum("cost").alias("cost")).orderBy("ward")
"""


def sums(rows: int) -> list[dict[str, Any]]:
    """Return what the reduce step must come to."""
    wards = {ward: [n / 2 for n in range(1, rows) if "ABC"[n % 3] == ward] for ward in "ABC"}
    return [{"ward": ward, "n": len(costs), "cost": sum(costs)} for ward, costs in wards.items()]


@pytest.mark.parametrize(("rows", "task"), [(9, SQL), (600, SQL), (600, CODE)], ids=["inline", "by reference", "code"])
async def test_a_reduce_step_reads_what_frames_came_to(on_spark: Playbooks, rows: int, task: str) -> None:
    state = await ran(on_spark, playbook(REDUCE.replace("TASK", task)), {"rows": rows})

    assert state.status == "COMPLETED", state.error
    assert (state.results["each"].ref is None) == (rows == 9)
    assert state.results["reduce"].data["rows"] == sums(rows)


async def test_more_rows_than_allowed_are_refused(on_spark: Playbooks) -> None:
    state = await ran(
        on_spark,
        playbook("""
        workflow:
          - step: all
            tool: {kind: spark, input: {t: [1, 2, 3]}, sql: "SELECT value FROM t", max_rows: 2}
        """),
    )

    assert state.status == "FAILED"
    assert "more than 2 rows" in str(state.error)
