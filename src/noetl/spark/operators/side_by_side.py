"""Works of one query whose rows must not meet go in, what each wrote comes out: planned one by one, run as one Spark job.

Each work's query is a branch of its own in one plan, so that rows of two works never share an operator, and only the
cost of a job, which is most of what a small task costs, is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from noetl.model.dataset import partition_values
from noetl.model.lineage import Lineage
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.ongoing_work import is_connect
from noetl.spark.drivers.protocol import Work
from noetl.spark.lake.reader import TASK, frame_of
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import shaped, write_batch
from noetl.spark.operators.attempt import column_types, place_of
from noetl.spark.operators.lineage import marked, told_lineage
from noetl.spark.operators.spark_sql import job_query, refuse_other_relations
from noetl.spark.queries.combined_joins import NotSeparable
from noetl.spark.queries.tree import one_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BRANCHES: Final = 20
"""Works in one plan: what a plan costs grows faster than its branches."""


def write_side_by_side(
    own: SparkSession, works: Sequence[Work], lake: Lake
) -> tuple[dict[int, PartitionWrite], dict[int, Lineage]]:
    """Answer the query of each work and write all answers at once; one write for each, and the lineage all share."""
    sql = job_query(works[0])
    if works[0].grant.operator != "spark_sql" or is_connect(own):
        raise NotSeparable("the operator takes one task at a time")
    _refuse_order(sql)
    refuse_other_relations(sql, [one.alias for one in works[0].grant.inputs])
    target = works[0].grant.targets[0]
    branches: list[DataFrame] = []
    lineage: dict[int, Lineage] = {}
    for index, work in enumerate(works):
        inputs = {one.alias: marked(frame_of(own, one, work.manifests, lake), one.alias) for one in work.grant.inputs}
        # A view is looked up when a query over it is analysed, so the next work may take its name.
        for alias, rows in inputs.items():
            rows.createOrReplaceTempView(alias)
        answer = own.sql(sql)
        if not answer._jdf.queryExecution().analyzed().deterministic():
            raise NotSeparable("the answer depends on where its rows are made")
        values = {name: F.lit(text) for name, text in partition_values(work.grant.partition_key).items()}
        branch = shaped(answer, target, values, column_types(inputs))
        if branches and branch.schema != branches[0].drop(TASK).schema:
            raise NotSeparable("the answer's types depend on the task")
        branches.append(branch.withColumn(TASK, F.lit(index)))
        lineage = lineage or told_lineage(work, {0: answer}, inputs, sql)
    rows = reduce(lambda one, other: one.unionAll(other), branches)
    return write_batch(rows, target, [place_of(work) for work in works], lake, types={}), lineage


def _refuse_order(sql: str) -> None:
    """Refuse a query whose rows have an order that a file shared with nobody would keep."""
    tree = one_query(sql)
    if isinstance(tree, exp.Query) and tree.args.get("order") and not tree.args.get("limit"):
        raise NotSeparable("the rows of each task have an order")
