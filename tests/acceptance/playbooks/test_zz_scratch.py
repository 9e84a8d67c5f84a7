from pathlib import Path

from noetl.testing.playbooks import playbook

GOOD = Path(__file__).parents[2] / "playbooks" / "good"
async def test_c(playbooks):
    st = await playbooks.run((GOOD / "step_spec.yaml").read_text())
    print(st.status, st.error, st.ctx, st.results, st.swallowed, st.runs)
    st = await playbooks.run(playbook("workflow:\n  - step: a\n    tool: {kind: noop}\n    set: {total: 1}\n    next: {arcs: [{step: b}]}\n  - step: b\n    tool: {kind: noop, set: {ctx.x: '{{ total }}'}}\n"))
    print(st.status, st.error, st.ctx)
async def test_json_limits(playbooks):
    st = await playbooks.run(playbook("workflow:\n  - step: a\n    loop: {in: '{{ range(50) | list }}', iterator: n}\n    tool: {kind: python, input: {n: '{{ n }}'}, code: \"result = 'x' * 5000\", set: {ctx.y: '{{ (ctx.y | default([])) + [output.data] }}'}}\n"))
    print("BIG", st.status, st.error)
    for e in await playbooks.events(st.execution_id): print(e["event_type"], str(e["error"])[:300])
async def test_err(playbooks):
    st = await playbooks.run(playbook("workflow:\n  - step: a\n    loop: {in: '{{ range(5) | list }}', iterator: n}\n    tool: {kind: python, code: \"raise ValueError('x' * 100000)\"}\n"))
    print("ERR", st.status, str(st.error)[:200])
    st = await playbooks.run(playbook("workflow:\n  - step: a\n    tool: {kind: python, code: \"raise ValueError('x' * 100000)\"}\n"))
    print("ERR", st.status, str(st.error)[:200])
    st = await playbooks.run(playbook("workflow:\n  - step: a\n    tool: {kind: shell, command: \"head -c 200000 /dev/zero | tr '\\\\0' x >&2; exit 1\"}\n"))
    print("ERR", st.status, str(st.error)[:200])
