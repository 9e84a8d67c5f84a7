"""Tasks that run together: one that is poisoned, and two that bring the same key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.faults.pipelines.spark_jobs import MODULE

from noetl.testing.engines.pipelines import TestedPipelines
from noetl.testing.engines.short_leases import until

pytestmark = [pytest.mark.service, pytest.mark.fault, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_only_the_poisoned_member_of_a_batch_fails(spark_pipelines: TestedPipelines) -> None:
    """INV-58."""
    deployed = await spark_pipelines.begin("""
        name: poisoned
        jobs:
          - name: numbers
            sql: SELECT id, id % 4 AS part FROM range(16)
            partition_by: [part]
          - name: shares
            inputs: [numbers]
            partition_by: [part]
            sql: SELECT part, id, 12 / (part - 2) AS share FROM numbers
        """)
    end = await spark_pipelines.finished(deployed.execution_id)
    assert end.status == "failed"
    assert "part=2" in (end.error or "")
    found = {task.partition_key: (task.status, task.attempt) for task in await spark_pipelines.tasks("shares")}
    assert found == {f"part={part}": ("Failed" if part == 2 else "Completed", 1) for part in range(4)}
    stands = await spark_pipelines.fetch(
        "SELECT v.partition_key, v.row_count FROM noetl.partition_version AS v JOIN noetl.dataset AS d"
        " USING (dataset_uuid) WHERE d.producer_job = 'shares' AND v.current ORDER BY 1"
    )
    assert [tuple(row) for row in stands] == [(f"part={part}", 4) for part in (0, 1, 3)]


async def test_of_two_appends_of_one_key_at_once_one_row_stays(pipelines: TestedPipelines) -> None:
    """INV-57."""
    pipelines.give("orders", {"id": 0, "made_by": "build"})
    await pipelines.deploy("""
        name: appended
        jobs: [{name: orders, operator: made, runtime: dispatcher, unique_key: [id]}]
        publish: {appended: orders}
        """)
    gate = pipelines.gate("orders")
    runs = []
    for _ in range(2):
        runs.append(await pipelines.start("appended", "orders"))
        await gate.arrived()
    made = iter(["first", "second"])
    pipelines.made.given["orders"] = lambda work: [{"id": 1, "made_by": next(made)}, {"id": 0, "made_by": "late"}]
    gate.open()
    ends = await asyncio.gather(*map(pipelines.finished, runs))
    assert [end.status for end in ends] == ["completed", "completed"]
    build, kept = await pipelines.rows("appended")
    assert build == {"id": 0, "made_by": "build"}
    assert (kept["id"], kept["made_by"] in {"first", "second"}) == (1, True)


async def test_of_two_appends_of_one_key_on_spark_one_row_stays(
    spark_pipelines: TestedPipelines, tmp_path: Path
) -> None:
    """INV-57."""
    key = tmp_path / "key"
    key.write_text("0")
    dag = f"""
        name: appended_on_spark
        jobs: [{{name: orders, function: "spark_jobs:append", unique_key: [id], config: {{told: "{tmp_path}"}}}}]
        publish: {{appended_on_spark: orders}}
        """
    deployed = await spark_pipelines.deploy(dag, spark_jobs__py=MODULE)
    key.unlink()
    runs = []
    for _ in range(2):
        runs.append(await spark_pipelines.start("appended_on_spark", "orders"))
        await until(lambda: asyncio.to_thread((tmp_path / str(runs[-1])).exists), "a task that waits for its key")
    (tmp_path / "written").write_text("1")
    (tmp_path / "written").rename(key)
    ends = await asyncio.gather(*map(spark_pipelines.finished, runs))
    assert [end.status for end in ends] == ["completed", "completed"]
    built, kept = await spark_pipelines.rows("appended_on_spark")
    assert built == {"id": 0, "run": deployed.execution_id}
    assert (kept["id"], kept["run"] in runs) == (1, True)
