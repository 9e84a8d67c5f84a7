"""Results of every size: inline, outside the ledger, selected from and gathered over runs of a step."""

from __future__ import annotations

import msgspec
import pytest

from noetl.kernel.payloads.codec import JSON, decode_json
from noetl.testing.engines.playbook_runs import playbook
from noetl.testing.engines.playbooks import Playbooks


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
        (65_534, (False, True)),
        (65_535, (False, False)),
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


MANY = """
  - step: l
    loop: {in: "{{ range(workload.many) | list }}", iterator: x, spec: {mode: fanout, max_in_flight: 4}}
    tool: {kind: python, input: {x: "{{ x }}", size: "{{ workload.size }}"}, code: "result = {'x': x, 'text': 'y' * size}"}
"""


@pytest.mark.parametrize(("many", "size", "is_large"), [(50, 1, False), (50, 1000, True), (0, 1, False)])
async def test_what_the_rows_of_a_loop_came_to_is_read_the_same_wherever_it_stands(
    playbooks: Playbooks, many: int, size: int, is_large: bool
) -> None:
    """50 shards take more than 32 KiB as tables, but as values only where the values are large."""
    state = await playbooks.run(
        playbook(
            f"workload: {{many: {many}, size: {size}}}\nworkflow:{MANY}"
            + """    set: {ctx.own: "{{ l.results | map(attribute='x') | sum }}", ctx.output: "{{ output.data.results | length }}"}
    next: {arcs: [{step: again, when: "{{ l.data.results | length == workload.many }}"}]}
  - step: again
    loop: {in: "{{ l }}", iterator: row, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: python, input: {x: "{{ row.x }}"}, code: "result = x + 1"}
    next: {arcs: [{step: used}]}
  - step: used
    tool: {kind: python, input: {last: "{{ l.results[-1].x if l.results else none }}"}, code: "def main(last, l, again): return [last, len(l['results']), l['total'], sum(again['results'])]"}
    next: {arcs: [{step: text}]}
  - step: text
    tool: {kind: shell, command: "echo {{ l.results | length }} {{ l.completed }}"}
"""
        )
    )

    assert state.status == "COMPLETED", state.error
    assert (state.results["l"].ref is not None) == is_large
    assert ("results" in state.results["l"].data) == (bool(many) and not is_large)
    total = sum(range(many))
    assert state.ctx == {"own": total, "output": many}
    assert await playbooks.data(state, "used") == [many - 1 if many else None, many, many, total + many]
    assert state.results["text"].data["stdout"] == f"{many} {many}\n"


async def test_rows_that_came_to_much_are_fetched_by_their_reference(playbooks: Playbooks) -> None:
    state = await playbooks.run(
        playbook(
            f"workload: {{many: 50, size: 1000}}\nworkflow:{MANY}"
            + """    next: {arcs: [{step: fetched}]}
  - step: fetched
    tool: {kind: artifact, action: get, input: {result_ref: "{{ l._ref }}"}, output: {select: [{path: $.row_count, as: n}]}}
    next: {arcs: [{step: same}]}
  - step: same
    tool: {kind: result_fetch, ref: "{{ l._ref }}"}
    next: {arcs: [{step: counted}]}
  - step: counted
    tool: {kind: duckdb, input: {levels: "{{ l }}"}, command: "SELECT sum(x)::INT AS n FROM levels"}
"""
        )
    )

    assert state.status == "COMPLETED", state.error
    assert state.results["fetched"].selected == {"n": 50}
    for step in ("fetched", "same"):
        data = await playbooks.data(state, step)
        assert [row["x"] for row in data["rows"]] == list(range(50))
        assert [frame["first_index"] for frame in data["frames"]] == list(range(50))
    assert state.results["counted"].data["rows"] == [{"n": sum(range(50))}]


async def test_a_childs_large_results_are_its_parents(playbooks: Playbooks) -> None:
    await playbooks.register(playbook(f"workload: {{many: 50, size: 1000}}\nworkflow:{MANY}", "tests/child"))
    await playbooks.register(
        playbook(
            "workflow:\n  - step: one\n    tool: {kind: python, code: \"result = {'t': 'x' * 99999}\"}\n", "tests/large"
        )
    )
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: call
            tool: {kind: playbook, path: tests/child, return_step: l}
            set: {ctx.total: "{{ call.total }}", ctx.last: "{{ output.data.results[49].x }}"}
            next: {arcs: [{step: large}]}
          - step: large
            tool: {kind: playbook, path: tests/large}
            set: {ctx.length: "{{ large.t | length }}"}
            next: {arcs: [{step: over}]}
          - step: over
            loop: {in: "{{ call }}", iterator: row}
            tool: {kind: noop, set: {ctx.seen: "{{ row.x }}"}}
            next: {arcs: [{step: each}]}
          - step: each
            loop: {in: [tests/child, tests/large], iterator: path}
            tool: {kind: playbook, path: "{{ path }}"}
            set: {ctx.rows: "{{ each.results[0].results | length }}", ctx.text: "{{ each.results[1].t | length }}"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    assert state.ctx == {"total": 50, "last": 49, "length": 99_999, "seen": 49, "rows": 50, "text": 99_999}
    assert (state.results["large"].data, "results" in state.results["call"].data) == (None, False)


async def test_a_reference_is_read_and_given_back_in_every_form(playbooks: Playbooks) -> None:
    """Its text, the fields older playbooks read, and an object of these; what is recorded of it stays the same."""
    state = await playbooks.run(
        playbook("""
        workflow:
          - step: big
            tool: {kind: python, code: "result = {'rows': ['x' * 100 for _ in range(1000)]}"}
            set: {ctx.kept: "{{ output.ref }}", ctx.bytes: "{{ output.ref.meta.bytes }}"}
            next: {arcs: [{step: text, when: "{{ big._ref.kind == 'result_ref' and ctx.kept.ref == big._ref.uri }}"}]}
          - step: text
            tool: {kind: artifact, action: get, ref: "{{ big._ref.ref }}"}
            next: {arcs: [{step: object}]}
          - step: object
            tool: {kind: artifact, action: get, input: {result_ref: {kind: "{{ big._ref.kind }}", ref: "{{ ctx.kept.ref }}", meta: "{{ big._ref.meta }}"}}}
            next: {arcs: [{step: rows}]}
          - step: rows
            loop: {in: [1, 2], iterator: n}
            tool: {kind: result_fetch, ref: "{{ big._ref.ref }}", output: {select: [{path: "$.rows[0]", as: first}]}}
            next: {arcs: [{step: meta}]}
          - step: meta
            tool: {kind: python, input: {meta: "{{ ctx.kept.meta }}"}, code: "result = meta"}
        """)
    )

    assert state.status == "COMPLETED", state.error
    ref = state.results["big"].ref
    assert ref is not None
    for step in ("text", "object"):
        assert len((await playbooks.data(state, step))["rows"]) == 1000
    assert state.results["rows"].data["completed"] == 2
    assert state.ctx == {"kept": msgspec.to_builtins(ref), "bytes": ref.bytes}
    assert state.results["meta"].data == {
        "content_type": JSON, "media_type": JSON, "bytes": ref.bytes, "sha256": ref.sha256, "schema_digest": None,
        "row_count": None, "compression": "zstd" if ref.encoding == "zstd" else None,
    }  # fmt: skip


async def test_the_text_of_a_reference_is_looked_up_within_the_organization(playbooks: Playbooks) -> None:
    big = await playbooks.run(
        playbook("workflow: [{step: big, tool: {kind: python, code: \"result = 'x' * 100000\"}}]")
    )
    ref = big.results["big"].ref
    assert ref is not None
    text = playbook("workload: {ref: ''}\nworkflow: [{step: get, tool: {kind: artifact, ref: '{{ workload.ref }}'}}]")
    got = await playbooks.run(text, {"ref": ref.uri})
    assert got.status == "COMPLETED", got.error
    assert len(await playbooks.data(got, "get")) == 100_000
    for uri, said in (
        (ref.uri.replace("/org/default/", "/org/other/"), "is not the locator of a payload of this organization"),
        (f"{ref.uri[:-2]}{'00' if ref.uri[-2:] != '00' else '11'}", "no event refers to a payload"),
        ("noetl://execution/1/result/big/2", "is not the locator of a payload"),
        ("file:///etc/passwd", "there is no reference"),
    ):
        refused = await playbooks.run(text, {"ref": uri})
        assert refused.status == "FAILED"
        assert said in (refused.error or "")
