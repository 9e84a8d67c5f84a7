"""Works of one job go in, one result for each comes out as soon as it is there.

Works whose rows never meet run as one Spark job with the task in the plan; other queries side by side in one plan; all
others, and those of a batch that failed, run as jobs of their own beside each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from noetl.model.dataset import ALL, Manifest, partition_values
from noetl.model.lineage import Lineage
from noetl.model.task import PartitionWrite, TaskInput
from noetl.spark.drivers.ongoing_work import Interrupted, interrupted, is_connect, working
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.spark.lake.executor_rows import SOME
from noetl.spark.lake.parquet_files import in_parallel
from noetl.spark.lake.reader import TASK, frame_of, joined_input, keyed_frame
from noetl.spark.lake.storage import Lake
from noetl.spark.lake.writer import is_dynamic, write_batch
from noetl.spark.operators.attempt import (
    column_types,
    ended_well,
    made_unique,
    output_checks,
    place_of,
    refuse_foreign_rows,
    run_alone,
    subject_of,
    task_session,
)
from noetl.spark.operators.checks import run_checks
from noetl.spark.operators.failures import failure_of
from noetl.spark.operators.lineage import marked, told_lineage
from noetl.spark.operators.port import Given
from noetl.spark.operators.pyspark_function import pyspark_function
from noetl.spark.operators.side_by_side import BRANCHES, write_side_by_side
from noetl.spark.operators.spark_sql import job_query, refuse_other_relations
from noetl.spark.queries.combined import carry
from noetl.spark.queries.combined_joins import NotSeparable
from noetl.spark.queries.tree import one_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Deliver = Callable[[WorkResult], None]
Way = Callable[["SparkSession", Sequence[Work], Lake, float], list[WorkResult]]
"""How works are run together; it raises NotSeparable for works that it is not for."""
_BESIDE: Final = max(4, 2 * (os.cpu_count() or 1))
"""Spark jobs at once: more than cores, since a small job mostly waits for its driver."""
_PLANS: Final = 2
"""Plans of works side by side at once: one is made while another runs."""
_MIXING: Final = (exp.Group, exp.Window, exp.Distinct, exp.Join, exp.SetOperation)


def run_batch(session: SparkSession, works: Sequence[Work], lake: Lake, deliver: Deliver) -> None:
    """Run attempts at tasks of one job and deliver each result once it is there."""
    left, reason = list(works), None
    ready = [work for work in works if not interrupted(work.tag)]
    if len(ready) > 1:
        told, reason = _shared(session, ready, lake, deliver)
        left = [work for work in works if work.grant.lease.task_id not in told]

    def alone(work: Work) -> None:
        result = run_alone(session, work, lake)
        more = {"alone": reason} if reason else {}
        deliver(msgspec.structs.replace(result, metrics=result.metrics | more))

    with ThreadPoolExecutor(max(1, min(_BESIDE, len(left)))) as pool:
        list(pool.map(alone, left))


def _shared(session: SparkSession, works: Sequence[Work], lake: Lake, deliver: Deliver) -> tuple[set[str], str | None]:
    """Run works as few Spark jobs and deliver what comes of it; return whose results are told, and why not those of all."""
    told: set[str] = set()
    reasons: list[str] = []

    def tried(way: Way, together: Sequence[Work]) -> bool:
        try:
            done = _together(session, together, lake, way)
        except NotSeparable as error:
            reasons.append(str(error))
            return False
        except (Exception, Interrupted) as error:
            # Which of them is to blame shows when each runs by itself.
            reasons.append(f"all together failed: {failure_of(error).message}")
            return True
        for result in done:
            deliver(result)
            told.add(result.task_id)
        return True

    if not tried(_keyed, works):
        pieces = [works[start : start + BRANCHES] for start in range(0, len(works), BRANCHES)]
        if tried(_beside, pieces[0]):
            with ThreadPoolExecutor(max(1, min(_PLANS, len(pieces) - 1))) as pool:
                list(pool.map(lambda piece: tried(_beside, piece), pieces[1:]))
    return told, reasons[-1] if reasons else None


def _together(session: SparkSession, works: Sequence[Work], lake: Lake, way: Way) -> list[WorkResult]:
    since = time.perf_counter()
    _refuse_mixed(works)
    with working(session, [work.tag for work in works]):
        return way(task_session(session, works[0]), works, lake, since)


def _keyed(own: SparkSession, works: Sequence[Work], lake: Lake, since: float) -> list[WorkResult]:
    """Run works whose rows never meet, with the task in the plan."""
    if works[0].grant.operator == "spark_sql":
        asked = _query(own, works, lake)
    elif works[0].grant.operator == "pyspark" and works[0].grant.config.get("batch") is True:
        asked = _function(own, works, lake)
    else:
        raise NotSeparable("the operator takes one task at a time")
    places = [place_of(work) for work in works]
    by_task = write_batch(asked.rows, works[0].grant.targets[0], places, lake, types=column_types(asked.inputs))
    told = [index for index in range(len(works)) if not (asked.always and not by_task[index].files)]
    return _ended(own, works, by_task, told, lake, since, metrics={"batch": len(works)}, lineage=asked.lineage)


def _beside(own: SparkSession, works: Sequence[Work], lake: Lake, since: float) -> list[WorkResult]:
    """Run works whose rows would meet, each in a branch of one plan."""
    by_task, lineage = write_side_by_side(own, works, lake)
    metrics = {"batch": len(works), "beside": True}
    return _ended(own, works, by_task, range(len(works)), lake, since, metrics=metrics, lineage=lineage)


@dataclass(frozen=True)
class _Together:
    """What all works come to at once."""

    rows: DataFrame
    """With the task of each in `TASK`."""
    inputs: Mapping[str, DataFrame]
    lineage: dict[int, Lineage]
    always: bool = False
    """Whether a work alone answers with a row even where it has none here."""


def _ended(
    own: SparkSession,
    works: Sequence[Work],
    by_task: dict[int, PartitionWrite],
    told: Sequence[int],
    lake: Lake,
    since: float,
    **more: Any,
) -> list[WorkResult]:
    target = works[0].grant.targets[0]

    def finished(index: int) -> None:
        work = works[index]
        refuse_foreign_rows(target, by_task[index])
        by_task[index] = made_unique(own, work, work.grant.targets[0], by_task[index], lake)

    in_parallel(finished, told)
    subjects = [subject_of(works[index], works[index].grant.targets[0], [by_task[index]]) for index in told]
    wanted = output_checks(works[0], target)
    checks = run_checks(own, wanted, subjects, lake) if wanted and subjects else [()] * len(told)
    return [
        ended_well(works[index], [by_task[index]], found, since, **more)
        for index, found in zip(told, checks, strict=True)
    ]


def _refuse_mixed(works: Sequence[Work]) -> None:
    """Refuse works that do not differ in their rows alone."""
    first = works[0].grant
    if len(first.targets) != 1 or is_dynamic(first.targets[0], first.partition_key):
        raise NotSeparable("the job has not one output of one partition")
    for work in works:
        same = msgspec.structs.replace(work.grant.targets[0], parts=first.targets[0].parts) == first.targets[0]
        if work.grant.job_id != first.job_id or work.grant.config != first.config or not same:
            raise NotSeparable("the tasks are not of one job")


def _sorted_inputs(works: Sequence[Work]) -> tuple[dict[str, list[TaskInput]], dict[str, TaskInput]]:
    """Return the inputs that differ between the tasks, and those that are the same for all."""
    keyed: dict[str, list[TaskInput]] = {}
    shared: dict[str, TaskInput] = {}
    for index, first in enumerate(works[0].grant.inputs):
        each = [work.grant.inputs[index] for work in works]
        parts = [(one.dataset_version, part.partition_key) for one in each for part in one.parts]
        if all(one.parts == first.parts for one in each):
            shared[first.alias] = first
        elif len(parts) == len(set(parts)):
            keyed[first.alias] = each
        else:
            raise NotSeparable(f"some partitions of {first.alias} are read by several tasks")
    return keyed, shared


def _manifests(works: Sequence[Work]) -> dict[str, Manifest]:
    return {digest: manifest for work in works for digest, manifest in work.manifests.items()}


def _query(own: SparkSession, works: Sequence[Work], lake: Lake) -> _Together:
    """Answer the job's query for all works at once; the rows have their task in `TASK`."""
    keyed, shared = _sorted_inputs(works)
    sql = job_query(works[0])
    refuse_other_relations(sql, [*keyed, *shared])
    carried = carry(sql, keyed, shared, TASK)
    manifests = _manifests(works)
    with_task = {alias: keyed_frame(own, given, manifests, lake) for alias, given in keyed.items()}
    inputs = {alias: rows.drop(TASK) for alias, rows in with_task.items()}
    inputs |= {alias: frame_of(own, given, manifests, lake) for alias, given in shared.items()}
    inputs = {alias: marked(rows, alias) for alias, rows in inputs.items()}
    for alias, rows in inputs.items():
        rows.createOrReplaceTempView(alias)
    tree, plain = one_query(sql), own.sql(sql)
    if not _same(plain, own.sql(tree.sql("spark"))):
        raise NotSeparable("the query's tree does not spell the same query")
    for alias, rows in with_task.items():
        rows.createOrReplaceTempView(alias)
    answer = own.sql(carried.sql)
    if [one.dataType for one in answer.schema][:-1] != [one.dataType for one in plain.schema]:
        raise NotSeparable("the answer's types depend on the task")
    answer = answer.toDF(*plain.columns, TASK)
    if tree.find(*_MIXING) and not tree.args.get("order"):
        # Otherwise every Spark task would write a file of its own for every task.
        answer = answer.hint("rebalance", TASK)
    return _Together(answer, inputs, told_lineage(works[0], {0: plain}, inputs, sql), carried.always_answers)


def _same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two frames are proven to be the same query."""
    if one.sameSemantics(other):
        return True
    if is_connect(one.sparkSession):
        return False
    # Named parts of a query have numbers of their own until the optimizer has put them where they are used.
    first, second = (rows._jdf.queryExecution().optimizedPlan() for rows in (one, other))
    return bool(first.sameResult(second))


def _function(own: SparkSession, works: Sequence[Work], lake: Lake) -> _Together:
    """Call the job's function once with the rows of all works; its partition columns say which is whose."""
    target = works[0].grant.targets[0]
    keys = [work.grant.partition_key for work in works]
    if not target.partition_by or len(set(keys)) < len(keys):
        raise NotSeparable("the tasks are not told apart by their partitions")
    keyed, shared = _sorted_inputs(works)
    manifests = _manifests(works)
    joined = {alias: joined_input(given) for alias, given in keyed.items()} | shared
    inputs = {alias: marked(frame_of(own, given, manifests, lake), alias) for alias, given in joined.items()}
    whole = msgspec.structs.replace(works[0], grant=msgspec.structs.replace(works[0].grant, partition_key=ALL))
    answer = pyspark_function(Given(own, whole, inputs, lake)).outputs[0]
    lineage = told_lineage(works[0], {0: answer}, inputs)
    texts = [partition_values(key) for key in keys]
    table = {
        f"__noetl_k{index}": [SOME + (one[name] or "") if one[name] is not None else "n" for one in texts]
        for index, name in enumerate(target.partition_by)
    }
    named = own.createDataFrame(pa.table({**table, TASK: pa.array(range(len(works)), pa.int32())}))
    for index, name in enumerate(target.partition_by):
        text = F.coalesce(F.concat(F.lit(SOME), F.col(f"`{name}`").cast("string")), F.lit("n"))
        answer = answer.withColumn(f"__noetl_k{index}", text)
    # A row of a partition that no work has gets no task, and its batch fails: each then runs by itself.
    return _Together(answer.join(F.broadcast(named), list(table), "left").drop(*table), inputs, lineage)
