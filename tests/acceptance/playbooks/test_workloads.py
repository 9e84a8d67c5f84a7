"""Templates in a workload: rendered once, when an execution is requested, and recorded as what they came to."""

from __future__ import annotations

import pytest

from noetl.errors import TemplateFailed
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks

FILES = playbook("""
workload:
  file: "{{ source.name }}_{{ execution_id }}.txt"
  source: {name: orders, url: "https://example.org/{{ workload.source.name }}"}
workflow:
  - step: show
    tool: {kind: shell, cmds: "echo '{{ file }} {{ workload.source.url }}'"}
""")
CHILD = playbook(
    """
    workload: {n: 1, file: "{{ n }}_{{ execution_id }}"}
    workflow:
      - step: show
        tool: {kind: python, input: {file: "{{ file }}", id: "{{ execution_id }}"}, code: "result = [file, id]"}
    """,
    "tests/child",
)


async def test_a_tool_gets_what_a_default_came_to_and_the_event_has_it(playbooks: Playbooks) -> None:
    """INV-41."""
    state = await playbooks.run(FILES)

    assert state.status == "COMPLETED", state.error
    name = f"orders_{state.execution_id}.txt"
    assert state.results["show"].data["stdout"] == f"{name} https://example.org/orders\n"
    (began,) = await playbooks.events(state.execution_id, "playbook.initialized")
    assert began["context"]["workload"] == {
        "file": name,
        "source": {"name": "orders", "url": "https://example.org/orders"},
    }


async def test_what_is_given_is_never_rendered(playbooks: Playbooks) -> None:
    """INV-41."""
    state = await playbooks.run(FILES, {"source": {"name": "{{ execution_id }}"}})

    assert state.status == "COMPLETED", state.error
    written = "{{ execution_id }}"
    assert state.workload["source"] == {"name": written, "url": f"https://example.org/{written}"}
    assert state.results["show"].data["stdout"].startswith(f"{written}_{state.execution_id}.txt ")


async def test_a_run_that_is_repeated_has_the_same_values(playbooks: Playbooks) -> None:
    """The values are taken from what was recorded: the id in them stays that of the first execution."""
    first = await playbooks.run(FILES)
    again = await playbooks.engine.rerun(
        playbooks.scope, first.execution_id, from_step=None, payload={}, requested_by="tests"
    )
    again = await playbooks.finished(again.execution_id)
    other = await playbooks.engine.rerun(
        playbooks.scope, first.execution_id, from_step="show", payload={"file": "{{ x }}"}, requested_by="tests"
    )
    other = await playbooks.finished(other.execution_id)

    assert again.execution_id != first.execution_id
    assert again.workload == first.workload
    assert again.results["show"].data["stdout"] == first.results["show"].data["stdout"]
    assert other.workload == {**first.workload, "file": "{{ x }}"}


async def test_an_execution_under_a_key_has_its_values_once(playbooks: Playbooks) -> None:
    entry = await playbooks.register(FILES)
    await playbooks.worker()
    first, again = [
        await playbooks.engine.start(playbooks.scope, entry, requested_by="tests", key="once") for _ in range(2)
    ]

    assert again.execution_id == first.execution_id
    assert again.workload["file"] == f"orders_{first.execution_id}.txt"
    await playbooks.finished(first.execution_id)


async def test_children_render_their_own_defaults_with_their_own_ids(playbooks: Playbooks) -> None:
    """Whether a step is suspended on them, a task of a list waits for them, or each row has one."""
    await playbooks.register(CHILD)
    state = await playbooks.run(
        playbook("""
        workload: {mine: "p_{{ execution_id }}"}
        workflow:
          - step: whole
            tool: {kind: playbook, path: tests/child, input: {n: "{{ mine }}"}}
            next: {arcs: [{step: part}]}
          - step: part
            tool:
              - {name: none, kind: noop}
              - {name: one, kind: playbook, path: tests/child, input: {n: "{{ '{{' }} raw {{ '}}' }}"}}
            next: {arcs: [{step: each}]}
          - step: each
            loop: {in: [3, 4], iterator: n}
            tool: {kind: playbook, path: tests/child, input: {n: "{{ iter.n }}"}}
        """)
    )

    assert state.status == "COMPLETED", state.error
    came = [state.results["whole"].data, state.results["part"].data, *state.results["each"].data["results"]]
    ids = [child for _, child in came]
    assert len({*ids, str(state.execution_id)}) == 5
    given = [f"p_{state.execution_id}", "{{ raw }}", "3", "4"]
    assert [file for file, _ in came] == [f"{n}_{child}" for n, child in zip(given, ids, strict=True)]


async def test_an_execution_whose_workload_cannot_be_rendered_is_not_begun(playbooks: Playbooks) -> None:
    """INV-41."""
    text = playbook("workload:\n  a: 1\n  b: '{{ workload.nobody }}'\nworkflow: [{step: a, tool: {kind: noop}}]\n")
    entry = await playbooks.register(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "nobody" in one)
    said = rf"^tests/it, field workload\.b: 'workload\.nobody' is undefined in .* \(line {line} of the playbook\)$"
    with pytest.raises(TemplateFailed, match=said):
        await playbooks.engine.start(playbooks.scope, entry, requested_by="tests")
    async with playbooks.runtime.database.transaction(playbooks.scope) as connection:
        assert await connection.fetchval("SELECT count(*) FROM noetl.event WHERE event_type LIKE 'execution.%'") == 0
    await playbooks.worker()
    begun = await playbooks.engine.start(playbooks.scope, entry, {"nobody": 5}, requested_by="tests")
    assert (await playbooks.finished(begun.execution_id)).workload == {"a": 1, "b": 5, "nobody": 5}


async def test_a_child_whose_workload_cannot_be_rendered_is_an_error_of_its_step(playbooks: Playbooks) -> None:
    await playbooks.register(
        playbook("workload: {b: '{{ workload.nobody }}'}\nworkflow: [{step: a, tool: {kind: noop}}]\n", "tests/broken")
    )
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: whole
            tool: {kind: playbook, path: tests/broken}
            next: {arcs: [{step: part, when: "{{ output.error.kind == 'transform' }}", set: {ctx.whole: "{{ output.error.message }}"}}]}
          - step: part
            tool: [{name: none, kind: noop}, {name: one, kind: playbook, path: tests/broken}]
            next: {arcs: [{step: end, when: "{{ output.error.kind == 'transform' }}", set: {ctx.part: "{{ output.error.message }}"}}]}
          - step: end
            tool: {kind: noop}
        """)
    )

    assert state.status == "COMPLETED", state.error
    for said in (state.ctx["whole"], state.ctx["part"]):
        assert "tests/broken, field workload.b: 'workload.nobody' is undefined" in said
