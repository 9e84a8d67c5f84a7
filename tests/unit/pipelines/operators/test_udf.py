"""User code that runs apart: what it is given, what it leaves, and how it hears that it should end."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest
from tests.unit.pipelines.works import lake_of, target, work

from noetl.pipelines.operators import udf
from noetl.pipelines.operators.left_files import make_mark, opened
from noetl.pipelines.operators.udf import UdfOperator
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import OperatorFailed, Produced, may_be_asked

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


LEAVING = """
import atexit, os, shutil

def leave():
{left}

def run():
    import pyarrow as pa
    atexit.register(leave)
    return pa.table({{"n": [1]}})
"""


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("    os.symlink({secret!r}, 'state.json')", "state.json, which is a link"),
        ("    os.link({secret!r}, 'state.json')", "state.json, which has another name"),
        ("    os.mkfifo('state.json')", "state.json, which is no ordinary file"),
        ("    open('state.json', 'wb').truncate(1 << 40)", "state.json, which is larger than"),
        ("    open('state.json', 'w').write('[' * 100_000)", "state.json, which is larger than"),
        ("    open('state.json', 'w').write('{{')", "no JSON"),
        ("    os.remove('output-0.arrow'); os.symlink({table!r}, 'output-0.arrow')", "output-0.arrow, which is a link"),
        ("    os.remove('output-0.arrow'); os.mkfifo('output-0.arrow')", "output-0.arrow, which is no ordinary file"),
        ("    open('output-0.arrow', 'wb').truncate(1 << 40)", "output-0.arrow, which is larger than"),
        ("    open('output-0.arrow', 'w').write('nothing')", "output-0.arrow, which is no table"),
    ],
)
async def test_what_a_function_left_is_a_bounded_file_of_its_own_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, said: str
) -> None:
    """INV-200: the worker reads it with its own rights."""
    may_be_asked(asyncio.Event())
    monkeypatch.setattr(udf, "STATE_BYTES", 1_000)
    secret, table = tmp_path / "secret.json", tmp_path / "table.arrow"
    secret.write_text('{"secret": 1}')
    feather.write_feather(pa.table({"secret": [1]}), table)
    code = LEAVING.format(left=left.format(secret=str(secret), table=str(table)))
    async with asyncio.timeout(30):
        with pytest.raises(OperatorFailed, match=said):
            await operated(tmp_path, code)


async def test_a_directory_that_a_function_put_in_place_of_its_own_is_not_read(tmp_path: Path) -> None:
    """INV-200."""
    may_be_asked(asyncio.Event())
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "state.json").write_text('{"secret": 1}')
    code = LEAVING.format(
        left=f"    here = os.getcwd(); os.rename(here, here + '-moved'); os.symlink({str(tmp_path / 'secrets')!r}, here)"
    )
    produced = await operated(tmp_path, code)
    assert (produced.state, produced.tables[0].to_pylist()) == (None, [{"n": 1}])


def test_a_mark_is_made_through_no_link(tmp_path: Path) -> None:
    """INV-200."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "stop").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "other").write_text("as it was")
    os.utime(tmp_path / "other", (1, 1))
    (tmp_path / "here" / "mark").symlink_to(tmp_path / "other")
    with opened(tmp_path / "here") as directory:
        for name in ("stop", "mark", "good"):
            make_mark(directory, name)
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "other").stat().st_mtime == 1
    assert (tmp_path / "here" / "good").is_file()
