"""Works of one job go in, one result for each comes out as soon as it is there.

Works whose rows never meet run as one Spark job with the task in the plan; all others, and those of a batch that
failed, run as jobs of their own beside each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from noetl.model.dataset import ALL, Manifest, partition_values
from noetl.model.task import TaskInput
from noetl.spark.checking import run_checks
from noetl.spark.lake import Lake
from noetl.spark.obstore_rows import SOME
from noetl.spark.operators.failures import failure_of
from noetl.spark.operators.port import Given
from noetl.spark.operators.pyspark_function import pyspark_function
from noetl.spark.operators.running import (
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
from noetl.spark.operators.spark_sql import job_query, refuse_other_relations
from noetl.spark.protocol import Work, WorkResult
from noetl.spark.query_tree import one_query
from noetl.spark.reading import TASK, frame_of, joined_input, keyed_frame
from noetl.spark.separable import carry
from noetl.spark.separable_joins import NotSeparable
from noetl.spark.statistics import in_parallel
from noetl.spark.working import Interrupted, interrupted, is_connect, working
from noetl.spark.writing import is_dynamic, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Deliver = Callable[[WorkResult], None]
_BESIDE: Final = max(4, 2 * (os.cpu_count() or 1))
"""Spark jobs at once: more than cores, since a small job mostly waits for its driver."""
_MIXING: Final = (exp.Group, exp.Window, exp.Distinct, exp.Join, exp.SetOperation)


def run_batch(session: SparkSession, works: Sequence[Work], lake: Lake, deliver: Deliver) -> None:
    """Run attempts at tasks of one job and deliver each result once it is there."""
    left, reason = list(works), None
    ready = [work for work in works if not interrupted(work.tag)]
    if len(ready) > 1:
        done, reason = _tried_together(session, ready, lake)
        for result in done:
            deliver(result)
        told = {result.task_id for result in done}
        left = [work for work in works if work.grant.lease.task_id not in told]

    def alone(work: Work) -> None:
        result = run_alone(session, work, lake)
        more = {"alone": reason} if reason else {}
        deliver(msgspec.structs.replace(result, metrics=result.metrics | more))

    with ThreadPoolExecutor(max(1, min(_BESIDE, len(left)))) as pool:
        list(pool.map(alone, left))


def _tried_together(session: SparkSession, works: Sequence[Work], lake: Lake) -> tuple[list[WorkResult], str | None]:
    """Run works as one Spark job; of works that must run by themselves nothing comes back but the reason."""
    try:
        return _together(session, works, lake), None
    except NotSeparable as error:
        return [], str(error)
    except (Exception, Interrupted) as error:
        # Which of them is to blame shows when each runs by itself.
        return [], f"all together failed: {failure_of(error).message}"


def _together(session: SparkSession, works: Sequence[Work], lake: Lake) -> list[WorkResult]:
    since = time.perf_counter()
    _refuse_mixed(works)
    with working(session, [work.tag for work in works]):
        own = task_session(session, works[0])
        if works[0].grant.operator == "spark_sql":
            rows, inputs, always = _query(own, works, lake)
        elif works[0].grant.operator == "pyspark" and works[0].grant.config.get("batch") is True:
            rows, inputs, always = _function(own, works, lake)
        else:
            raise NotSeparable("the operator takes one task at a time")
        return _ended(own, works, rows, inputs, lake, always=always, since=since)


def _ended(
    own: SparkSession,
    works: Sequence[Work],
    rows: DataFrame,
    inputs: Mapping[str, DataFrame],
    lake: Lake,
    *,
    always: bool,
    since: float,
) -> list[WorkResult]:
    target = works[0].grant.targets[0]
    by_task = write_batch(rows, target, [place_of(work) for work in works], lake, types=column_types(inputs))
    told = [index for index in range(len(works)) if not (always and not by_task[index].files)]

    def finished(index: int) -> None:
        work = works[index]
        refuse_foreign_rows(target, by_task[index])
        by_task[index] = made_unique(own, work, work.grant.targets[0], by_task[index], lake)

    in_parallel(finished, told)
    subjects = [subject_of(works[index], works[index].grant.targets[0], [by_task[index]]) for index in told]
    wanted = output_checks(works[0], target)
    checks = run_checks(own, wanted, subjects, lake) if wanted and subjects else [()] * len(told)
    return [
        ended_well(works[index], [by_task[index]], found, since, metrics={"batch": len(works)})
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


def _query(own: SparkSession, works: Sequence[Work], lake: Lake) -> tuple[DataFrame, dict[str, DataFrame], bool]:
    """Answer the job's query for all works at once; the rows have their task in `TASK`."""
    keyed, shared = _sorted_inputs(works)
    sql = job_query(works[0])
    refuse_other_relations(sql, [*keyed, *shared])
    carried = carry(sql, keyed, shared, TASK)
    manifests = _manifests(works)
    with_task = {alias: keyed_frame(own, given, manifests, lake) for alias, given in keyed.items()}
    inputs = {alias: rows.drop(TASK) for alias, rows in with_task.items()}
    inputs |= {alias: frame_of(own, given, manifests, lake) for alias, given in shared.items()}
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
    return answer, inputs, carried.always_answers


def _same(one: DataFrame, other: DataFrame) -> bool:
    """Whether two frames are proven to be the same query."""
    if one.sameSemantics(other):
        return True
    if is_connect(one.sparkSession):
        return False
    # Named parts of a query have numbers of their own until the optimizer has put them where they are used.
    first, second = (rows._jdf.queryExecution().optimizedPlan() for rows in (one, other))
    return bool(first.sameResult(second))


def _function(own: SparkSession, works: Sequence[Work], lake: Lake) -> tuple[DataFrame, dict[str, DataFrame], bool]:
    """Call the job's function once with the rows of all works; its partition columns say which is whose."""
    target = works[0].grant.targets[0]
    keys = [work.grant.partition_key for work in works]
    if not target.partition_by or len(set(keys)) < len(keys):
        raise NotSeparable("the tasks are not told apart by their partitions")
    keyed, shared = _sorted_inputs(works)
    manifests = _manifests(works)
    joined = {alias: joined_input(given) for alias, given in keyed.items()} | shared
    inputs = {alias: frame_of(own, given, manifests, lake) for alias, given in joined.items()}
    whole = msgspec.structs.replace(works[0], grant=msgspec.structs.replace(works[0].grant, partition_key=ALL))
    answer = pyspark_function(Given(own, whole, inputs, lake)).outputs[0]
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
    return answer.join(F.broadcast(named), list(table), "left").drop(*table), inputs, False
