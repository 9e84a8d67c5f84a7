"""Playbooks whose every row leaves an effect: one row of `public.effect` per key, counting how often it was worked off."""

from __future__ import annotations

from noetl.testing.engines.short_leases import LEASE_SECONDS

ROWS = 12
FRAME_ROWS = 3
HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: {name}, path: faults/{name}}}
workload: {{pg: {{}}}}
workflow:
"""
FRAME = f"{{max_rows: {FRAME_ROWS}, lease_seconds: {LEASE_SECONDS}, max_attempts: 5}}"
EFFECT = """
    tool:
      - name: effect
        kind: postgres
        auth: "{{{{ workload.pg }}}}"
        command: INSERT INTO public.effect (key) VALUES ($1) ON CONFLICT (key) DO UPDATE SET runs = effect.runs + 1
        params: ["{key}"]
"""
PUT = """
      - {{name: put, kind: artifact, action: put, input: {{data: {{key: "{key}"}}}}}}
"""
GATE = """
      - name: gate
        kind: postgres
        auth: "{{{{ workload.pg }}}}"
        command: INSERT INTO public.gate (key) VALUES ($1) ON CONFLICT (key) DO NOTHING
        params: ["{key}"]
"""
CLAIM = """
UPDATE public.queue SET status = 'claimed' WHERE id IN (
    SELECT id FROM public.queue WHERE status = 'pending' ORDER BY id
    LIMIT {{ __frame_max_rows }} FOR UPDATE SKIP LOCKED) RETURNING id
""".strip().replace("\n", " ")


def effect(key: str) -> str:
    """Return tasks that leave an effect under a key and then wait while somebody keeps the gate of that key shut."""
    return EFFECT.format(key=key) + GATE.strip("\n").format(key=key) + "\n"


def resumed(step: str, rows: int) -> str:
    """Return a loop of one frame whose rows also put an artifact; a new owner goes on where the last one wrote down."""
    frame = f"{{max_rows: {rows}, lease_seconds: {LEASE_SECONDS}, heartbeat_seconds: 0.001, retry_mode: resume}}"
    tasks = "".join(part.lstrip("\n").format(key=step + "-{{ iter.n }}") for part in (EFFECT, PUT, GATE))
    return f"""
  - step: {step}
    loop:
      in: "{{{{ range({rows}) | list }}}}"
      iterator: n
      spec: {{mode: parallel, max_in_flight: 1, frame: {frame}}}
{tasks}"""


def collection(step: str, then: str | None, rows: int = ROWS, slots: int = 2, frame: str = FRAME) -> str:
    """Return a loop over numbers."""
    return f"""
  - step: {step}
    loop:
      in: "{{{{ range({rows}) | list }}}}"
      iterator: n
      spec: {{mode: parallel, max_in_flight: {slots}, frame: {frame}}}
{effect(step + "-{{ iter.n }}")}{_next(then)}"""


def cursor(step: str, then: str | None, slots: int = 2, frame: str = FRAME) -> str:
    """Return a loop over the queue."""
    return f"""
  - step: {step}
    loop:
      cursor: {{kind: postgres, auth: "{{{{ workload.pg }}}}", claim: "{CLAIM}"}}
      iterator: row
      spec: {{mode: cursor, max_in_flight: {slots}, frame: {frame}}}
{effect(step + "-{{ iter.row.id }}")}{_next(then)}"""


def fanout(step: str, rows: int, slots: int) -> str:
    """Return a fan-out over numbers, one shard each."""
    return f"""
  - step: {step}
    loop:
      in: "{{{{ range({rows}) | list }}}}"
      iterator: n
      spec: {{mode: fanout, max_in_flight: {slots}, frame: {{lease_seconds: {LEASE_SECONDS}}}}}
{effect(step + "-{{ iter.n }}")}"""


def single(step: str, then: str | None) -> str:
    """Return a step that leaves one effect."""
    return f"  - step: {step}\n{effect(step)}{_next(then)}"


def child(step: str, path: str, then: str | None) -> str:
    """Return a step that waits for a child execution."""
    given = 'input: {pg: "{{ workload.pg }}"}'
    return f"  - step: {step}\n    tool: {{kind: playbook, path: {path}, {given}}}\n{_next(then)}"


def playbook(name: str, *steps: str) -> str:
    """Return a whole playbook."""
    return HEAD.format(name=name) + "".join(steps)


def _next(then: str | None) -> str:
    return "" if then is None else f"    next: {{arcs: [{{step: {then}}}]}}\n"
