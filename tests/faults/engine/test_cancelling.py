"""Cancelling reaches what runs: the processes of tools are gone and databases are left alone soon afterwards."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from tests.faults.engine.engine_testbed import EngineTestbed
from tests.faults.engine.playbooks import child, collection, playbook

from noetl.testing.engines.short_leases import open_short_leased, until

pytestmark = [pytest.mark.service, pytest.mark.fault]

ENDLESS = """
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: code}, {step: program}, {step: query}]}
  - step: code
    tool:
      kind: python
      input: {file: "{{ workload.folder }}/code"}
      code: |
        import os
        from pathlib import Path
        Path(file + ".new").write_text(str(os.getpid()))
        os.rename(file + ".new", file)
        while True:
            pass
  - step: program
    tool:
      kind: shell
      command: "echo $$ > '{{ workload.folder }}/program.new'; mv '{{ workload.folder }}/program.new' '{{ workload.folder }}/program'; sleep 600 & wait"
  - step: query
    tool: {kind: postgres, auth: "{{ workload.pg }}", command: "SELECT pg_sleep(600)"}
"""
BELOW = playbook("endless", ENDLESS)
ABOVE = playbook(
    "above",
    child("below", "faults/endless", None).replace(
        'input: {pg: "{{ workload.pg }}"}', 'input: {pg: "{{ workload.pg }}", folder: "{{ workload.folder }}/below"}'
    ),
)
SOON_SECONDS = 10.0
SLEEPERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
AND query LIKE 'SELECT pg_sleep%'
"""


async def processes_in(folder: Path) -> list[psutil.Process]:
    """Wait until the python and shell tasks run, and return their processes with everything they started."""

    async def told() -> bool:
        return (folder / "code").exists() and (folder / "program").exists()

    await until(told, "tools at work")
    own = [psutil.Process(int((folder / name).read_text())) for name in ("code", "program")]
    return [*own, *(below for process in own for below in process.children(recursive=True))]


@pytest.mark.parametrize("above", [False, True], ids=["the execution itself", "its parent"])
async def test_cancelling_an_execution_ends_what_its_tools_do(
    testbed: EngineTestbed, tmp_path: Path, above: bool
) -> None:
    """INV-44."""
    (tmp_path / "below").mkdir()
    async with open_short_leased(testbed.url, testbed.home, slots=4, reaps=True) as driven:
        if above:
            await testbed.engine.catalog.register(testbed.scope, BELOW)
            execution_id = await testbed.start(ABOVE, folder=str(tmp_path))
        else:
            execution_id = await testbed.start(BELOW, folder=str(tmp_path / "below"))
        running = await processes_in(tmp_path / "below")
        assert len(running) >= 3
        await until(lambda: testbed.effects.fetchval(SLEEPERS), "a query at work")

        query = "SELECT execution_id FROM noetl.execution_head WHERE parent_execution_id = $1"
        children = [row["execution_id"] for row in await testbed.effects.fetch(query, execution_id)]
        assert len(children) == (1 if above else 0)
        cancelled = [execution_id, *children]

        # Asked of a process that does none of the work: whoever does it learns of it by its leases. A reaper may come to
        # the child before the one who cancels does.
        own = await testbed.engine.cancel(testbed.scope, execution_id, reason="enough", by="test")
        assert own in (cancelled, [execution_id])

        async def all_gone() -> bool:
            alive = [each for each in running if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
            return not alive and not await testbed.effects.fetchval(SLEEPERS)

        await until(all_gone, "an end of the tools", SOON_SECONDS)
        for ended in cancelled:
            assert (await driven.engine.executions.state(testbed.scope, ended)).status == "CANCELLED"
    assert [await testbed.last_event(ended) for ended in cancelled] == ["execution.cancelled"] * len(cancelled)
    await testbed.assert_clean()


async def test_what_is_cancelled_is_noticed_without_a_beat(testbed: EngineTestbed) -> None:
    """Beats cannot get through here, and the lease lasts far longer than anybody waits."""
    workflow = """
  - step: each
    loop: {in: [1], iterator: n, spec: {frame: {lease_seconds: 600}}}
    tool: {kind: postgres, auth: "{{ workload.pg }}", command: "SELECT pg_sleep(600)"}
"""
    async with open_short_leased(testbed.url, testbed.home, slots=1):
        execution_id = await testbed.start(playbook("long", workflow))
        await until(lambda: testbed.effects.fetchval(SLEEPERS), "a query at work")
        for columns in ("", "(lease_until, last_heartbeat)"):
            await testbed.effects.execute(f"REVOKE UPDATE {columns} ON noetl.command, noetl.frame FROM noetl_runtime")
        await testbed.engine.cancel(testbed.scope, execution_id, reason="enough", by="test")

        async def is_over() -> bool:
            return not await testbed.effects.fetchval(SLEEPERS)

        await until(is_over, "an end of the query", SOON_SECONDS)
        await testbed.effects.execute(
            "GRANT UPDATE (lease_until, last_heartbeat) ON noetl.command, noetl.frame TO noetl_runtime"
        )
    assert await testbed.last_event(execution_id) == "execution.cancelled"


async def test_cancelling_a_loop_ends_its_rows_and_hands_out_no_others(testbed: EngineTestbed) -> None:
    async with (
        open_short_leased(testbed.url, testbed.home, slots=2, reaps=True),
        testbed.shut_gate("each-0"),
        testbed.shut_gate("each-3"),
    ):
        execution_id = await testbed.start(playbook("loop", collection("each", None)))
        await testbed.at_the_gate(2)
        await testbed.engine.cancel(testbed.scope, execution_id, reason="enough", by="test")
        await until(testbed.is_gate_free, "an end of the rows", SOON_SECONDS)
    assert (await testbed.effect_runs()).keys() == {"each-0", "each-3"}
    assert await testbed.last_event(execution_id) == "execution.cancelled"
    await testbed.assert_clean()
