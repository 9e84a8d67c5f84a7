"""What a loop's row costs the engine: a loop over trivial rows, all of whose time is the engine's own."""

from __future__ import annotations

from collections.abc import Collection

from bench.engine_testbed import open_engine_testbed
from bench.figure import Figure

ITEMS = 10_000
ROUNDS = 3

_LOOP = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: loop, path: bench/loop}}
workflow:
  - step: each
    loop: {{in: "{{{{ range({ITEMS}) | list }}}}", iterator: item, spec: {{mode: sequential}}}}
    tool: {{kind: noop}}
    next: {{arcs: [{{step: end, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
  - step: end
    tool: {{kind: noop}}
"""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure whole executions; their bare floor is nothing, for the rows do nothing."""
    async with open_engine_testbed() as testbed:
        entry = await testbed.register(_LOOP)
        await testbed.timed(entry)
        best = sorted([await testbed.timed(entry) for _ in range(ROUNDS)])[ROUNDS // 2]
    return [Figure.plain(name, best * 1000 / ITEMS, "ms", 0.5, "less") for name in wanted]
