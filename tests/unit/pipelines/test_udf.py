"""User code that runs apart: what it is given, what it leaves, and how it hears that it should end."""

from __future__ import annotations

import asyncio
import io
import zipfile
from pathlib import Path

import pytest
from tests.unit.pipelines.works import lake_of, target, work

from noetl.pipelines.in_process import OperatorFailed, Produced
from noetl.pipelines.operators.udf import UdfOperator
from noetl.pipelines.stopping import may_be_asked
from noetl.pipelines.tables import TableReader

COUNTING = """
import pyarrow as pa

def run(state):
    state["next"] = state.get("next", 1) + 1
    return pa.table({"n": [state["next"] - 1]})
"""
WAITING = """
import time
import pyarrow as pa

def run(stopping):
    while not stopping():
        time.sleep(0.01)
    return pa.table({"stopped": [True]})
"""


def bundle(code: str) -> bytes:
    """Return the files of a DAG with one function."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("main.py", code)
    return data.getvalue()


async def operated(tmp_path: Path, code: str, **given: object) -> Produced:
    """Run a function once."""
    one = work(target(), operator="udf", udf={"entrypoint": "main.py"}, **given)
    return await UdfOperator(TableReader(lake_of(tmp_path))).operate(one, bundle(code))


async def test_a_function_goes_on_with_what_it_left_in_its_state(tmp_path: Path) -> None:
    may_be_asked(asyncio.Event())
    first = await operated(tmp_path, COUNTING)
    assert (first.tables[0].to_pylist(), first.state) == ([{"n": 1}], {"next": 2})
    second = await operated(tmp_path, COUNTING, operator_state={"next": 7})
    assert (second.tables[0].to_pylist(), second.state) == ([{"n": 7}], {"next": 8})


async def test_a_function_that_leaves_its_state_alone_saves_none(tmp_path: Path) -> None:
    may_be_asked(asyncio.Event())
    code = "import pyarrow as pa\ndef run():\n    return pa.table({'n': [1]})\n"
    assert (await operated(tmp_path, code, operator_state={"next": 7})).state is None


async def test_a_state_that_is_no_json_fails(tmp_path: Path) -> None:
    may_be_asked(asyncio.Event())
    code = COUNTING.replace('state.get("next", 1) + 1', "object()").replace('state["next"] - 1', "1")
    with pytest.raises(OperatorFailed, match="not JSON serializable"):
        await operated(tmp_path, code)


async def test_a_function_hears_that_it_should_end(tmp_path: Path) -> None:
    """INV-67."""
    asked = asyncio.Event()
    may_be_asked(asked)
    running = asyncio.create_task(operated(tmp_path, WAITING))
    async with asyncio.timeout(30):
        asked.set()
        assert (await running).tables[0].to_pylist() == [{"stopped": True}]
