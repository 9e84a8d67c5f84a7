"""What a driver process does with the works it is given: sessions, prints and logs, errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from tests.unit.spark.drivers.conftest import WorkMaker
from tests.unit.spark.drivers.meeting import gathered, meeting

from noetl.model.dataset import Manifest
from noetl.model.task import PartitionWrite
from noetl.spark.drivers.protocol import Work, WorkResult
from noetl.testing.servers.spark import SharedDriver

pytestmark = pytest.mark.timeout(300)

Held = Callable[[], AbstractAsyncContextManager[SharedDriver]]


async def results(driver: Held, *works: Work) -> list[WorkResult]:
    async with driver() as held:
        by_task = {result.task_id: result async for result in held.run(works)}
    return [by_task[work.grant.lease.task_id] for work in works]


async def test_a_work_runs_on_spark_and_its_prints_are_its_log(driver: Held, work: WorkMaker) -> None:
    (result,) = await results(driver, work("print('counted'); metrics['rows'] = session.range(1000).count()"))
    assert (result.status, result.error) == ("ok", None)
    assert result.metrics == {"rows": 1000}
    assert result.log == "counted\n"


async def test_runs_at_the_same_time_keep_their_prints_apart(driver: Held, work: WorkMaker) -> None:
    code = """
        import threading, socket
        def meet(batches):
            # Both must be under way at once for either to go on.
            with socket.create_connection(("127.0.0.1", {port})) as other:
                other.recv(1)
            yield from batches
        def say():
            for _ in range(200):
                print("{name}")
        thread = threading.Thread(target=say)
        thread.start()
        session.range(0, 1, 1, 1).mapInArrow(meet, "id long").collect()
        thread.join()
    """
    async with meeting(2) as port, driver() as held:
        first = held.run([work(code.format(port=port, name="one"))])
        second = held.run([work(code.format(port=port, name="two"))])
        both = await gathered(first, second)
    assert [one.status for one in both] == ["ok", "ok"], both
    assert [one.log for one in both] == ["one\n" * 200, "two\n" * 200]


async def test_each_run_has_a_session_of_its_own_with_the_settings_all_share(driver: Held, work: WorkMaker) -> None:
    code = """
        metrics["views"] = [view.name for view in session.catalog.listTables()]
        session.range(1).createOrReplaceTempView("mine")
        keys = ("spark.sql.session.timeZone", "spark.sql.runSQLOnFiles", "spark.sql.shuffle.partitions",
                "spark.sql.sources.partitionColumnTypeInference.enabled")
        metrics["settings"] = [session.conf.get(key) for key in keys]
        metrics["pool"] = session.sparkContext.getLocalProperty("spark.scheduler.pool")
        metrics["tags"] = sorted(session.sparkContext.getJobTags())
        session.conf.set("spark.sql.session.timeZone", "Europe/Rome")
    """
    first = work(code, spark={"spark.sql.shuffle.partitions": "7"})
    second = work(code)
    (one,) = await results(driver, first)
    (two,) = await results(driver, second)
    assert one.metrics == {
        "views": [],
        "settings": ["UTC", "false", "7", "false"],
        "pool": "acme",
        "tags": [first.tag],
    }
    assert two.metrics == {
        "views": [],
        "settings": ["UTC", "false", "2", "false"],
        "pool": "acme",
        "tags": [second.tag],
    }


async def test_a_setting_that_no_single_job_can_have_is_refused_by_name(driver: Held, work: WorkMaker) -> None:
    fixed, shared = {"spark.executor.memory": "9g"}, {"spark.sql.session.timeZone": "Europe/Rome"}
    for given in (fixed, shared):
        (result,) = await results(driver, work("pass", job="clean", spark=given))
        (name,) = given
        assert (result.status, result.retryable) == ("error", False)
        assert result.error is not None
        assert name in result.error
        assert "'clean'" in result.error


async def test_an_error_of_the_job_is_told_with_its_trace_and_without_secrets(driver: Held, work: WorkMaker) -> None:
    code = "print('token is', work.secrets['api']['token']); raise ValueError('no ' + work.secrets['api']['token'])"
    (result,) = await results(driver, work(code, secrets={"api": {"token": "s3cr3t-word"}}))
    assert (result.status, result.error) == ("error", "dag/job: ValueError: no ***")
    assert "token is ***" in result.log
    assert "Traceback" in result.log
    assert "s3cr3t-word" not in result.log


async def test_executor_errors_and_spark_warnings_of_a_work_are_in_its_log_alone(driver: Held, work: WorkMaker) -> None:
    code = """
        def fails(batches):
            raise ValueError("row 17 of {name} is odd")
        session.range(1).mapInArrow(fails, "id long").collect()
    """
    one, two = work(code.format(name="left")), work(code.format(name="right"))
    async with driver() as held:
        first, second = await gathered(held.run([one]), held.run([two]))
    for result, own, other in ((first, "left", "right"), (second, "right", "left")):
        assert result.status == "error"
        assert f"row 17 of {own} is odd" in result.log
        assert "ERROR Executor: Exception in task" in result.log
        assert other not in result.log


async def test_an_operator_that_ends_without_a_result_fails_its_works(driver: Held, work: WorkMaker) -> None:
    (result,) = await results(driver, work("raise SystemExit(0)"))
    assert result.status == "error"
    assert result.error == "dag/job: SystemExit: 0"


async def test_making_unique_answers_like_a_run(driver: Held, work: WorkMaker) -> None:
    write = PartitionWrite(output=0, partition_key="all", schema=(), files=())
    landed = Manifest(dataset_version="g", partition_key="all", version=1, schema=())
    async with driver() as held:
        result = await held.make_unique(work("print(lake.root); metrics['n'] = 3"), write, landed)
    assert (result.status, result.metrics) == ("ok", {"n": 3})
    assert result.log.endswith("/lake\n")
