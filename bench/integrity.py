"""What it costs that files are proven: the same work with and without it, in turn.

Page checksums are measured on the work of `spark-job.wall` by Spark itself, and proofs of files on the questions of
`query.overhead_ms`, with files that this node has proven before.
"""

from __future__ import annotations

from collections.abc import Collection

from bench.figure import Figure, paired
from bench.pipeline_testbed import open_pipeline_testbed
from bench.query import asked, built
from bench.spark_floor import SparkFloor
from bench.spark_job import INPUT, SQL
from noetl.runtime.assembly.queries import open_queries
from noetl.services.query.queries import Queries

JOB_ROUNDS = 9
QUERY_ROUNDS = 41


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure page checksums of a large job, and proofs of a query's files."""
    measures = {"integrity.pages": _pages, "integrity.proofs_ms": _proofs}
    return [await measures[name]() for name in wanted]


async def _pages() -> Figure:
    """Measure Spark reading and writing pages with checksums, beside the same without."""
    async with open_pipeline_testbed() as testbed:
        await testbed.deploy(INPUT)
        files = [path for some in (await testbed.files("numbers")).values() for path in some]
        floor = await SparkFloor.start()

        async def checked(_: int) -> float:
            return await floor.seconds(do="query", files=files, sql=SQL, checksums=True)

        async def unchecked(_: int) -> float:
            return await floor.seconds(do="query", files=files, sql=SQL, checksums=False)

        await paired(checked, unchecked, 2)  # warms the JVM; not counted
        ours, bare, ratio = await paired(checked, unchecked, JOB_ROUNDS)
        await floor.stop()
    return Figure.of("integrity.pages", ratio, ours, bare, "s", 1.03, "less")


async def _proofs() -> Figure:
    """Measure queries over files that were proven before, beside the same without any look at the files."""
    async with open_pipeline_testbed(worker=False) as testbed:
        await built(testbed)
        async with open_queries(testbed.runtime, "bench") as queries:
            prove = Queries._prove

            async def proven(_: int) -> float:
                vars(queries).pop("_prove", None)
                assert queries._prove.__func__ is prove  # type: ignore[attr-defined]
                return await asked(testbed, queries)

            async def unproven(_: int) -> float:
                vars(queries)["_prove"] = lambda asking, pins: None
                return await asked(testbed, queries)

            await paired(proven, unproven, 3)  # proves the files; not counted
            ours, bare, _ = await paired(proven, unproven, QUERY_ROUNDS)
    return Figure.of("integrity.proofs_ms", ours - bare, ours, bare, "ms", 2, "less")
