"""Small playbooks from a seed: sequences, branches, loops in frames, rings, children, and tasks that fail once or for good.

There are few texts and many workloads, so that texts are read once for all worlds.
"""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec

from noetl.testing.engines.playbook_runs import playbook

Shape = Literal[
    "chain",
    "branch",
    "loop",
    "fanout",
    "ring",
    "child",
    "flaky",
    "children",
    "failing",
    "batch",
    "resumed",
    "shards",
    "long",
]
SHAPES: tuple[Shape, ...] = (
    "chain", "branch", "loop", "loop", "loop", "fanout", "fanout", "ring", "child", "child", "flaky", "children", "failing",
)  # fmt: skip

IN_FRAMES: tuple[Shape, ...] = ("loop", "fanout", "batch", "resumed", "shards")
RING_STEPS = 12
FRAME_LEASE_SECONDS = 4.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that somebody will ask for, and what must come of it if nobody cancels it."""

    name: str
    shape: Shape
    at: float
    rows: int = 0
    bad: tuple[int, ...] = ()
    """Rows whose task fails whatever is done."""
    fails: int = 0
    """How often the task of each row fails before it succeeds; a shard is tried again for it."""
    in_flight: int = 1
    max_rows: int = 1

    @property
    def workload(self) -> dict[str, Any]:
        """What it is started with."""
        if not self.rows:
            return {}
        return {
            "rows": list(range(self.rows)),
            "bad": list(self.bad),
            "size": self.max_rows,
            "slots": self.in_flight,
            "fails": self.fails,
        }

    @property
    def text(self) -> str:
        """Its playbook."""
        return TEXTS[self.shape]

    @property
    def path(self) -> str:
        """Where its playbook stands in the catalog."""
        return f"sim/{self.shape}"

    def __str__(self) -> str:
        about = f", {self.rows} rows in frames of {self.max_rows}, {self.in_flight} at a time" if self.rows else ""
        failing = f", rows {', '.join(map(str, self.bad))} fail" if self.bad else ""
        return f"{self.name}: a {self.shape}{about}{failing}"


def wanted(seed: int, only: Shape | None = None) -> list[Wanted]:
    """Return what people ask for under a seed, or as much of one shape."""
    chance = random.Random(f"{seed}/playbooks")  # noqa: S311 - no secret depends on it
    found = []
    for number in range(chance.choice((1, 2, 2, 3))):
        shape: Shape = chance.choice(SHAPES) if only is None else only
        rows = chance.choice((3, 6, 11, 17)) if shape in IN_FRAMES else 2 if shape == "children" else 0
        found.append(
            Wanted(
                name=f"run-{number + 1}",
                shape=shape,
                at=round(chance.uniform(0.0, 8.0), 2),
                rows=rows,
                bad=_bad(chance, shape, rows),
                fails=chance.choice((0, 1)) if shape in ("fanout", "batch", "shards") else 0,
                in_flight=chance.choice((1, 2, 3)),
                max_rows=chance.choice((1, 2, 4)),
            )
        )
    return found


def _bad(chance: random.Random, shape: Shape, rows: int) -> tuple[int, ...]:
    """Return the rows that fail; those of a batch are tried together, under the number of the first."""
    match shape:
        case "loop":
            return tuple(sorted(chance.sample(range(rows), chance.choice((0, 0, 0, 1)))))
        case "batch":
            return chance.choice(((), (0,)))
        case "shards":
            return tuple(sorted(chance.sample(range(rows), rows // 2)))
        case _:
            return ()


CHILD = playbook(
    "workload: {n: 1}\nworkflow: [{step: work, tool: {kind: python, input: {n: '{{ n }}'}, code: 'result = n'}}]",
    "sim/leaf",
)
_TASK = "tool: {kind: python, input: {n: 1}, code: result = n}"
_LOOP = """
workload: {rows: [], bad: [], size: 1, slots: 1, fails: 0}
workflow:
  - step: each
    loop: {in: "{{ rows }}", iterator: n, spec: {mode: MODE, max_in_flight: "{{ slots }}", frame: {max_rows: "{{ size }}", lease_seconds: LEASE, max_attempts: 9}}}
    tool: {kind: python, input: {n: "{{ n }}", bad: "{{ bad }}", fails: "{{ fails }}"}, code: result = n}
    next: {arcs: [{step: after}]}
  - step: after
    TASK
""".replace("LEASE", str(FRAME_LEASE_SECONDS)).replace("TASK", _TASK)
_BODIES: dict[Shape, str] = {
    "chain": f"workflow:\n  - step: one\n    {_TASK}\n    next: {{arcs: [{{step: two}}]}}\n  - step: two\n    {_TASK}\n"
    f"    next: {{arcs: [{{step: three}}]}}\n  - step: three\n    {_TASK}\n",
    "branch": f"""
workflow:
  - step: first
    {_TASK}
    next:
      spec: {{mode: inclusive}}
      arcs: [{{step: left}}, {{step: right}}, {{step: never, when: "{{{{ first.n > 5 }}}}"}}]
  - step: left
    {_TASK}
  - step: right
    {_TASK}
  - step: never
    {_TASK}
""",
    "loop": _LOOP.replace("MODE", "parallel"),
    "fanout": _LOOP.replace("MODE", "fanout"),
    "shards": _LOOP.replace("MODE", "fanout").replace("max_in_flight", "fanout: {max_shard_retries: 1}, max_in_flight"),
    "batch": _LOOP.replace("MODE", "parallel")
    .replace("max_attempts: 9", "max_attempts: 3, process: frame")
    .replace('n: "{{ n }}"', 'n: "{{ frame.base_index }}"'),
    "resumed": _LOOP.replace("MODE", "parallel").replace(
        "max_attempts: 9", "max_attempts: 9, retry_mode: resume, heartbeat_seconds: 1"
    ),
    "ring": f"""
executor: {{spec: {{policy: {{limits: {{steps: {RING_STEPS}}}}}}}}}
workflow:
  - step: here
    {_TASK}
    next: {{arcs: [{{step: there}}]}}
  - step: there
    {_TASK}
    next: {{arcs: [{{step: here}}]}}
""",
    "child": f"""
workflow:
  - step: ask
    tool: {{kind: playbook, path: sim/leaf, input: {{n: 5}}, wait: true}}
    next: {{arcs: [{{step: after}}]}}
  - step: after
    {_TASK}
""",
    "flaky": """
workflow:
  - step: try
    tool:
      kind: python
      input: {n: 1, fails: 2}
      code: result = n
      spec: {policy: {rules: [{when: "{{ output.status == 'error' }}", then: {do: retry, attempts: 4, delay: 0.5}}, {else: {then: {do: continue}}}]}}
""",
    "failing": """
workflow:
  - step: one
    tool: {kind: python, input: {n: 1, bad: [1]}, code: result = n}
""",
    "long": """
workflow:
  - step: one
    tool: {kind: python, input: {n: 1, seconds: 25}, code: result = n}
""",
    "children": """
workload: {rows: [], bad: [], size: 1, slots: 1, fails: 0}
workflow:
  - step: each
    loop: {in: "{{ rows }}", iterator: n, spec: {mode: parallel, max_in_flight: 2, frame: {max_rows: 1, lease_seconds: 4.0, max_attempts: 9}}}
    tool: {kind: playbook, path: sim/leaf, input: {n: "{{ n }}"}, wait: true}
""",
}
TEXTS: dict[Shape, str] = {shape: playbook(body, f"sim/{shape}") for shape, body in _BODIES.items()}
