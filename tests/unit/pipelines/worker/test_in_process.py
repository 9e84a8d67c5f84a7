"""Operators that run in this process: what each attempt came to, whatever became of the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.unit.pipelines.works import lake_of, target, work

from noetl.errors import Unavailable
from noetl.pipelines.tables.partitions import TableWriter
from noetl.pipelines.worker.in_process import InProcess, OperatorFailed, Produced
from noetl.spark.drivers.protocol import Work


class Telling:
    """Does what the config of its work says."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        match work.grant.config["do"]:
            case "refuse":
                raise OperatorFailed("no such playbook", retryable=False, log="looked everywhere\n")
            case "break":
                raise Unavailable("the API does not answer")
            case "stumble":
                raise ValueError("seven")
            case "wait":
                self.waiting.set()
                await asyncio.Event().wait()
        return Produced(tables={0: pa.table({"id": [1]})}, state={"next": 2}, metrics={"rows": 1}, log="done\n")


def asked(number: int, what: str) -> Work:
    one = work(target(), config={"do": what})
    lease = msgspec.structs.replace(one.grant.lease, task_id=f"task-{number}")
    return msgspec.structs.replace(one, grant=msgspec.structs.replace(one.grant, lease=lease))


async def test_each_attempt_has_its_own_result(tmp_path: Path) -> None:
    runner = InProcess({"made_up": Telling()}, TableWriter(lake_of(tmp_path)))
    works = [asked(number, what) for number, what in enumerate(("do", "refuse", "break", "stumble"))]
    async with runner.open(works[0].grant, b"") as run:
        assert run.application_id is None
        results = {result.task_id: result async for result in run.results(works)}
    done, refused, broken, stumbled = (results[f"task-{number}"] for number in range(4))
    assert (done.status, done.operator_state, done.metrics, done.log) == ("ok", {"next": 2}, {"rows": 1}, "done\n")
    assert done.writes[0].files[0].rows == 1
    assert (refused.error, refused.retryable, refused.log) == ("no such playbook", False, "looked everywhere\n")
    assert (broken.error_kind, broken.retryable) == ("unavailable", True)
    assert (stumbled.error, stumbled.error_kind) == ("ValueError: seven", "defect")
    assert "Traceback" in stumbled.log


async def test_one_attempt_is_interrupted_and_the_others_go_on(tmp_path: Path) -> None:
    operator = Telling()
    runner = InProcess({"made_up": operator}, TableWriter(lake_of(tmp_path)))
    works = [asked(0, "wait"), asked(1, "do")]
    async with runner.open(works[0].grant, b"") as run:
        results = run.results(works)
        first = await anext(results)
        assert (first.task_id, first.status) == ("task-1", "ok")
        await operator.waiting.wait()
        await run.interrupt("noetl-nobody-1")
        await run.interrupt(works[0].tag)
        second = await anext(results)
    assert (second.task_id, second.status) == ("task-0", "interrupted")


async def test_an_operator_of_elsewhere_is_refused(tmp_path: Path) -> None:
    runner = InProcess({}, TableWriter(lake_of(tmp_path)))
    with pytest.raises(OperatorFailed, match="'made_up' does not run in this process"):
        async with runner.open(work().grant, b""):
            pass
