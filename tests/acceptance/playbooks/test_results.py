"""Results of every size: inline, outside the ledger, selected from and gathered over runs of a step."""

from __future__ import annotations

from noetl.payloads.codec import decode_json
from noetl.testing.playbooks import Playbooks, playbook


async def test_large_results_leave_the_ledger_and_later_templates_read_them(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: big
            tool: {kind: python, code: "result = {'rows': [{'n': n, 'text': 'x' * 100} for n in range(2000)], 'name': 'big'}"}
            set: {ctx.count: "{{ output.data.rows | length }}"}
            next: {arcs: [{step: small, when: "{{ big.rows[1999].n == 1999 }}"}]}
          - step: small
            tool: {kind: python, input: {last: "{{ big.rows[-1] }}", name: "{{ big.data.name }}"}, code: "def main(last, name, big): return [last['n'], name, big['rows'][5]['n']]"}
            next: {arcs: [{step: each}]}
          - step: each
            loop: {in: "{{ big.rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 4}}
            tool: {kind: noop, set: {iter.n: "{{ row.n }}"}}
            next: {arcs: [{step: shell}]}
          - step: shell
            tool: {kind: shell, command: "echo {{ big.rows[7].n }} {{ small.data[0] }}"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["big"].data is None
    assert state.results["big"].ref is not None
    assert state.results["big"].ref.bytes > 200_000
    assert state.ctx == {"count": 2000}
    assert state.results["small"].data == [1999, "big", 5]
    assert state.results["each"].data["completed"] == 2000
    assert state.results["shell"].data["stdout"] == "7 1999\n"
    stored = decode_json(await playbooks.runtime.payloads.fetch(playbooks.scope, state.results["big"].ref))
    assert stored["name"] == "big"


async def test_a_result_stays_inline_up_to_its_limit(playbooks: Playbooks) -> None:
    text = playbook("""
    workload: {bytes: 100}
    workflow:
      - step: one
        tool: {kind: python, input: {n: "{{ workload.bytes }}"}, code: "result = 'x' * n", output: {inline_max_bytes: 1000}}
        next: {arcs: [{step: two}]}
      - step: two
        tool: {kind: python, input: {n: "{{ workload.bytes }}"}, code: "result = 'x' * n"}
        next: {arcs: [{step: both}]}
      - step: both
        tool: {kind: python, input: {a: "{{ one.data }}", b: "{{ two.data }}"}, code: "result = len(a) + len(b)"}
    """)
    for size, inline in (
        (100, (True, True)),
        (2_000, (False, True)),
        (40_000, (False, True)),
        (70_000, (False, False)),
    ):
        state = await playbooks.run(text, {"bytes": size})
        assert state.status == "COMPLETED", state.error
        assert (state.results["one"].ref is None, state.results["two"].ref is None) == inline
        assert state.results["both"].data == 2 * size


async def test_selected_fields_stand_beside_the_whole(playbooks: Playbooks, api: str) -> None:
    state = await playbooks.run(
        playbook("""
        workload: {api: ""}
        workflow:
          - step: few
            tool: {kind: http, url: "{{ api }}/api/v1/users?limit=2", output: {select: [{path: "$.data.total", as: total}, {path: "$.data.users[1].name", as: second}]}}
            set: {ctx.few: "{{ few.total }}"}
            next: {arcs: [{step: heavy}]}
          - step: heavy
            tool: {kind: http, url: "{{ api }}/api/v1/heavy?payload_kb=100&pageSize=1", output: {select: [{path: "$.data.paging.total", as: total}]}}
            set: {ctx.heavy: "{{ heavy.total }}", ctx.ref: "{{ output.ref.bytes > 100000 }}"}
            next: {arcs: [{step: use}]}
          - step: use
            tool: {kind: python, input: {a: "{{ few.second }}", b: "{{ heavy.total }}", whole: "{{ heavy.data.data[0].id }}"}, code: "result = [a, b, whole]"}
        """),
        {"api": api},
    )

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"few": 35, "heavy": 100, "ref": True}
    assert state.results["use"].data == ["user-2", 100, 1]
    assert state.results["heavy"].selected == {"total": 100}


async def test_a_selection_that_leads_nowhere_fails_the_step(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: a
            tool: {kind: python, code: "result = {'x': 1}", output: {select: [{path: "$.y.z", as: z}]}}
        """)
    )

    assert state.status == "FAILED"
    assert "field output.select" in (state.error or "")
    assert "$.y.z leads nowhere" in (state.error or "")


async def test_results_are_gathered_over_the_runs_of_a_step(playbooks: Playbooks) -> None:
    expected = {
        "append": [{"n": 1, "items": [1]}, {"n": 2, "items": [2]}, {"n": 3, "items": [3]}],
        "replace": {"n": 3, "items": [3]},
        "merge": {"n": 3, "items": [3]},
    }
    for strategy, gathered in expected.items():
        state = await playbooks.run(gathering(f"{{enabled: true, strategy: {strategy}}}"))
        assert state.status == "COMPLETED", state.error
        assert state.results["page"].accumulated == gathered
        assert state.results["end"].data == [gathered]
    state = await playbooks.run(gathering("{enabled: true, strategy: concat, merge_path: $.items, max_items: 2}"))
    assert state.results["end"].data == [[1, 2]]


def gathering(rule: str) -> str:
    """Return a playbook that runs a step three times and gathers its results."""
    return playbook(f"""
    workload: {{n: 0}}
    workflow:
      - step: page
        tool: {{kind: python, input: {{n: "{{{{ (ctx.n | default(0)) + 1 }}}}"}}, code: "result = {{'n': n, 'items': [n]}}", output: {{accumulate: {rule}}}}}
        set: {{ctx.n: "{{{{ output.data.n }}}}"}}
        next:
          arcs:
            - {{step: page, when: "{{{{ ctx.n < 3 }}}}"}}
            - {{step: end}}
      - step: end
        tool: {{kind: python, input: {{all: "{{{{ page.accumulated }}}}"}}, code: "result = [all]"}}
    """)


async def test_a_last_step_that_says_nothing_does_not_hide_the_result(playbooks: Playbooks) -> None:
    found = await playbooks.run_alone(
        playbook("""
        workload: {given: 1}
        workflow:
          - step: work
            tool: {kind: python, code: "result = {'answer': 42}"}
            next: {arcs: [{step: end}]}
          - step: end
            tool: {kind: noop}
        """),
        {"given": 2},
    )

    assert (found.status, found.result, found.workload) == ("COMPLETED", {"answer": 42}, {"given": 2})


async def test_numbers_and_texts_of_all_kinds_come_back_as_they_are(playbooks: Playbooks) -> None:
    code = "return [1, 1.5, 2**60, True, None, '007', '', {'a': [1.0, 10]}, 'ünïcödé \\\\U0001f600']"
    state = await playbooks.run(
        playbook(f"""
        workflow:
          - step: make
            tool: {{kind: python, code: "{code}"}}
            next: {{arcs: [{{step: each}}]}}
          - step: each
            loop: {{in: "{{{{ make.data }}}}", iterator: value, spec: {{frame: {{max_rows: 3}}}}}}
            tool: {{kind: python, input: {{value: "{{{{ value }}}}"}}, code: "result = value"}}
        """)
    )

    assert state.status == "COMPLETED", state.error
    made, each = state.results["make"].data, state.results["each"].data["results"]
    # An integer that JSON readers would round is a text.
    expected = [1, 1.5, str(2**60), True, None, "007", "", {"a": [1.0, 10]}, "ünïcödé \U0001f600"]
    assert [(type(value), value) for value in each] == [(type(value), value) for value in made]
    assert made == expected
