"""What the bounds of templates cost a loop's row: the same loop with rows that are templates, with bounds and without, in turn.

Rows do nothing but render, so that everything else a row has to pay for is only the engine's own (`loop.item_ms`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.engine_testbed import open_engine_testbed
from bench.figure import Figure, paired
from noetl.language.templates.bounds import meter, operators, weights
from noetl.language.templates.sandbox import SANDBOX

ITEMS = 2_000
ROUNDS = 61

_LOOP = f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: bounds, path: bench/bounds}}
workload: {{rate: 3, names: [north, east, south, west]}}
workflow:
  - step: each
    loop: {{in: "{{{{ range({ITEMS}) | list }}}}", iterator: item, spec: {{mode: sequential}}}}
    input:
      number: "{{{{ item }}}}"
      price: "{{{{ item * workload.rate + 1 }}}}"
      place: "{{{{ workload.names[item % 4] | upper }}}}"
      said: "row {{{{ item }}}} of {{{{ workload.names | length }}}} places"
      even: "{{{{ 'yes' if item in [0, 2, 4] else 'no' }}}}"
      all: "{{{{ workload.names | join(', ') }}}}"
    tool: {{kind: noop}}
    next: {{arcs: [{{step: end, when: "{{{{ event.name == 'loop.done' }}}}"}}]}}
  - step: end
    tool: {{kind: noop}}
"""

_WITHOUT: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    meter.spend: lambda steps: None,
    meter.open_budget: lambda steps=0, *, is_inline=False, look=None: None,
    meter.counted: lambda items, price=1: iter(items),
    weights.charge: lambda value: value,
    weights.charge_items: lambda value: value,
    weights.weigh: lambda value: 0,
    weights.bounded: lambda value: value,
    operators.arithmetic: lambda symbol, left, right: operators.OPERATORS[symbol](left, right),
    operators.pay_for_call: lambda function, args, kwargs: args,
    operators.searched: lambda value: value,
}
"""What does the same as each function of the bounds, without paying for it and without refusing anything."""


async def figures(wanted: Collection[str]) -> list[Figure]:
    """Measure whole executions; their floor are the same executions without bounds."""
    async with open_engine_testbed() as testbed:
        entry = await testbed.register(_LOOP)

        async def bounded(_: int) -> float:
            return await testbed.timed(entry) * 1000 / ITEMS

        async def unbounded(_: int) -> float:
            with without_bounds():
                return await testbed.timed(entry) * 1000 / ITEMS

        # Templates are read with bounds, as ever; not counted.
        await bounded(0)
        await unbounded(0)
        ours, floor, ratio = await paired(bounded, unbounded, ROUNDS)
    return [Figure.of(name, ratio, ours, floor, "ms", 1.05, "less") for name in wanted]


@contextmanager
def without_bounds() -> Iterator[None]:
    """Take the bounds away wherever they are known by name: in every module, and among the filters of templates."""
    places = [*(vars(module) for name, module in sys.modules.items() if name.startswith("noetl.")), SANDBOX.filters]
    kept = [(place, name, known) for place in places for name, known in place.items() if _is_bound(known)]
    for place, name, known in kept:
        place[name] = _WITHOUT[known]
    try:
        yield
    finally:
        for place, name, known in kept:
            place[name] = known


def _is_bound(known: object) -> bool:
    # By identity: not everything that a module knows by name can be looked up in a mapping.
    return any(known is function for function in _WITHOUT)
