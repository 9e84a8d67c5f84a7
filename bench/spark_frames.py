"""What a stage costs whose frames run inside Spark's executors, beside a bare mapInArrow doing the same work per row."""

from __future__ import annotations

from collections.abc import Collection

from bench.engine_testbed import open_engine_testbed
from bench.figure import Figure, paired
from bench.spark_floor import SparkFloor

ROWS = 10_000
FRAME_ROWS = 50
WORK_MS = 1.0
LANES = 2
WARM = 2
ROUNDS = 5
PLAYBOOK = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: frames, path: bench/spark_frames}}
executor: {{profile: distributed, runtime: spark}}
workflow:
  - step: each
    loop:
      in: "{{{{ range({ROWS}) | list }}}}"
      iterator: n
      spec: {{mode: parallel, max_in_flight: {LANES}, frame: {{max_rows: {FRAME_ROWS}, process: frame}}}}
    tool:
      kind: python
      input: {{rows: "{{{{ frame.rows }}}}"}}
      code: |
        import time
        for row in rows:
            until = time.perf_counter() + {WORK_MS} / 1000
            while time.perf_counter() < until:
                pass
        result = len(rows)
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure with both sessions warm: the bare one has run the same job as often."""
    del wanted
    floor = await SparkFloor.start()
    try:
        async with open_engine_testbed() as testbed:
            entry = await testbed.register(PLAYBOOK)

            async def ours(_number: int) -> float:
                return await testbed.timed(entry)

            async def bare(_number: int) -> float:
                return await floor.seconds(do="frames", rows=ROWS, frame_rows=FRAME_ROWS, work_ms=WORK_MS, slots=LANES)

            for number in range(WARM):
                await ours(number)
                await bare(number)
            mine, base, value = await paired(ours, bare, ROUNDS)
    finally:
        await floor.stop()
    return [Figure.of("spark-frames.wall", value, mine, base, "s", 1.3, "less")]
