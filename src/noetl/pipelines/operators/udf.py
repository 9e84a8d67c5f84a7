"""The udf operator: a function of the bundle, run in a process of its own that has no secrets and no way to the ledger.

`udf.entrypoint` is a Python file with a function `run`, which is called with pyarrow tables by alias and returns a table,
or a list of tables, one per output. If it takes `state` it gets what its last task left there, a dictionary it may change;
if it takes `stopping`, a function that tells whether it should end soon. Tables pass as Arrow files in a directory of its
own.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.feather as feather

from noetl.engine.confinement.policy import give_to_tasks
from noetl.engine.tools.programs.process import ToolProcess
from noetl.pipelines.catalog.dags.bundles import unpack
from noetl.pipelines.operators.left_files import Unsafe, make_mark, opened, read_left
from noetl.pipelines.tables.partitions import TableReader
from noetl.pipelines.worker.in_process import OperatorFailed, Produced, stop_asked
from noetl.spark.drivers.protocol import Work

LIMIT_SECONDS: Final = 1800.0
MEMORY_BYTES: Final = 2 << 30
_INTERPRETER_BYTES: Final = 256 << 20
"""What the interpreter and its libraries take beside the function."""
_LOG: Final = 1 << 20
OUTPUT_BYTES: Final = MEMORY_BYTES
"""What the tables it returns take together, all of which come into the memory of the worker."""
STATE_BYTES: Final = 16 << 20
_OUTPUT: Final = re.compile(r"output-([0-9]{1,9})\.arrow")

_RUNNER: Final = """
import importlib.util, inspect, json, os, resource, sys
import pyarrow.feather as feather
told = json.load(open("told.json"))
resource.setrlimit(resource.RLIMIT_DATA, (told["memory"], told["memory"]))
sys.path.insert(0, told["code"])
spec = importlib.util.spec_from_file_location("entrypoint", told["file"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
tables = {alias: feather.read_table(path, memory_map=False) for alias, path in told["inputs"].items()}
offered = {"state": told["state"], "stopping": lambda: os.path.exists("stop")}
taken = inspect.signature(module.run).parameters
more = {name: value for name, value in offered.items() if name in taken and name not in tables}
made = module.run(**tables, **more)
if "state" in more:
    with open("state.json", "w") as file:
        json.dump(more["state"], file, allow_nan=False)
for number, table in enumerate(made if isinstance(made, (list, tuple)) else [made]):
    feather.write_feather(table, f"output-{number}.arrow", compression="uncompressed")
"""


class UdfOperator:
    """Runs user code that is not trusted with anything but its inputs."""

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    async def operate(self, work: Work, bundle: bytes) -> Produced:
        """Run the function once."""
        grant = work.grant
        file = str((grant.udf or {}).get("entrypoint", ""))
        if not file:
            raise OperatorFailed(f"job {grant.job} names no udf.entrypoint", retryable=False)
        tables = {one.alias: await self._reader.read(work, one) for one in grant.inputs}
        made = tempfile.TemporaryDirectory(prefix="noetl-udf-", ignore_cleanup_errors=True)
        with made as folder, opened(Path(folder)) as left:
            here = Path(folder)
            await asyncio.to_thread(_prepare, here, bundle, tables, file, grant.operator_state)
            await asyncio.to_thread(give_to_tasks, here)
            log = await self._run(here, left, grant.timeout_seconds or LIMIT_SECONDS)
            outputs = await asyncio.to_thread(_outputs, left)
            state = await asyncio.to_thread(_state, left)
        wanted = {target.output for target in grant.targets}
        if wanted - outputs.keys():
            raise OperatorFailed(
                f"job {grant.job} has {len(wanted)} outputs, its function returned {len(outputs)}",
                retryable=False,
                log=log,
            )
        changed = state if state != grant.operator_state else None
        return Produced(tables={output: outputs[output] for output in wanted}, state=changed, log=log)

    async def _run(self, here: Path, left: int, seconds: float) -> str:
        command, env = [sys.executable, "-I", "-c", _RUNNER], {"PATH": "/usr/bin:/bin", "HOME": str(here)}
        started = await ToolProcess.start(
            command, cwd=str(here), env=env, memory_bytes=MEMORY_BYTES + _INTERPRETER_BYTES,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        process = started.process
        telling = asyncio.create_task(_tell_to_stop(left))
        try:
            async with asyncio.timeout(seconds):
                said, _ = await process.communicate()
        except TimeoutError:
            raise OperatorFailed(f"the function took longer than its {seconds:g} s") from None
        finally:
            telling.cancel()
            await asyncio.shield(started.kill())
        log = said[-_LOG:].decode(errors="replace")
        if process.returncode:
            last = (log.strip().splitlines() or ["it said nothing"])[-1]
            raise OperatorFailed(f"the function ended with {process.returncode}: {last}", log=log)
        return log


async def _tell_to_stop(left: int) -> None:
    """Let the function know when it should end soon."""
    await stop_asked().wait()
    await asyncio.to_thread(make_mark, left, "stop")


def _prepare(here: Path, bundle: bytes, tables: dict[str, pa.Table], file: str, state: dict[str, Any]) -> None:
    code = here / "code"
    unpack(bundle, code)
    if not (code / file).is_file():
        raise OperatorFailed(f"the bundle has no file {file}", retryable=False)
    inputs = {}
    for number, (alias, table) in enumerate(tables.items()):
        inputs[alias] = f"input-{number}.arrow"
        feather.write_feather(table, here / inputs[alias], compression="uncompressed")
    told: dict[str, Any] = {
        "code": str(code), "file": str(code / file), "inputs": inputs, "memory": MEMORY_BYTES, "state": state,
    }  # fmt: skip
    (here / "told.json").write_text(json.dumps(told))


def _state(left: int) -> dict[str, Any] | None:
    text = _left(left, "state.json", STATE_BYTES)
    if text is None:
        return None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        raise OperatorFailed("the state the function left is no JSON", retryable=False) from None
    if not isinstance(state, dict):
        raise OperatorFailed("the state the function left is no dictionary", retryable=False)
    return state


def _outputs(left: int) -> dict[int, pa.Table]:
    found: dict[int, pa.Table] = {}
    space = OUTPUT_BYTES
    for name in os.listdir(left):
        named = _OUTPUT.fullmatch(name)
        data = None if named is None else _left(left, name, space)
        if named is None or data is None:
            continue
        space -= len(data)
        try:
            found[int(named[1])] = feather.read_table(pa.BufferReader(data), memory_map=False)
        except pa.ArrowException:
            raise OperatorFailed(f"the function left {name}, which is no table", retryable=False) from None
    return found


def _left(left: int, name: str, most: int) -> bytes | None:
    try:
        return read_left(left, name, most)
    except Unsafe as problem:
        raise OperatorFailed(f"the function left {name}, which {problem}", retryable=False) from None
