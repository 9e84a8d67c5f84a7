"""A template that fails at run names the line of the playbook it stands in, wherever that is."""

from __future__ import annotations

import re

import pytest

from noetl.engine.plan.planned import Plan
from noetl.engine.worker.compiled_step import CompiledTask, compile_step
from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Playbook
from noetl.language.playbook.parse import parse
from noetl.language.templates.template import compile_value
from noetl.services.credentials.keychain.keychain import rendered

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: lines, path: demo/lines}
workbook:
  - name: shared
    tool:
      kind: http
      url: "http://x/{{ line_8 }}"
      input: {a: "{{ line_9 }}", b: "{{ never }}"}
workflow:
  - step: one
    input:
      n: "{{ line_13 }}"
    loop:
      in: "{{ line_15 }}"
      iterator: x
      spec: {mode: parallel, max_in_flight: "{{ line_17 }}", frame: {max_rows: "{{ line_17 }}"}}
    spec:
      timeout: "{{ line_19 }}"
      policy:
        admit:
          rules:
            - {when: "{{ line_23 }}", then: {allow: "{{ line_23 }}"}}
            - {else: {then: {allow: "{{ line_24 }}"}}}
    tool:
      - name: get
        kind: http
        url: http://x/
        headers:
          A: plain
          B: "{{ line_31 }}"
        params: {list: [1,
          "{{ line_33 }}"]}
        json: "{{ line_34 }}"
        auth: "{{ line_35 }}"
        set: {ctx.a: "{{ line_36 }}"}
        spec:
          timeout: "{{ line_38 }}"
          policy:
            rules:
              - when: "{{ line_41 }}"
                then: {do: retry, attempts: "{{ line_42 }}", delay: "{{ line_42 }}", set: {ctx.b: "{{ line_42 }}"}}
              - else: {then: {set: {ctx.c: "{{ line_43 }}"}}}
      - name: save
        kind: postgres
        query: |
          SELECT 1;
          SELECT '{{ line_48 }}'
      - name: shared
        kind: workbook
        input: {b: "{{ line_51 }}"}
    set:
      ctx.d: "{{ line_53 }}"
    next:
      arcs:
        - {step: child, when: "{{ line_56 }}", set: {ctx.e: "{{ line_56 }}"}}
  - step: child
    input: {i: "{{ line_58 }}"}
    tool:
      kind: playbook
      path: "{{ line_61 }}"
      payload: {j: "{{ line_62 }}"}
"""
PLAYBOOK: Playbook = parse(TEXT).playbook
PLAN = Plan(PLAYBOOK)


def parts_of_task(task: CompiledTask) -> list[object]:
    parts: list[object] = [task.options, task.input, task.auth, task.timeout, *task.set]
    for rule in () if task.policy is None else task.policy.rules:
        parts += [rule.when, rule.attempts, rule.delay, *rule.set]
    return parts


def compiled_parts() -> list[object]:
    step, child = PLAN.steps["one"], PLAN.steps["child"]
    assert step.loop is not None
    parts: list[object] = [step.loop.collection, step.loop.max_in_flight, step.loop.frame, step.timeout, *step.set]
    parts += [part for rule in step.admit for part in rule]
    parts += [part for arc in step.arcs for part in (arc.when, *arc.set)]
    parts.append(child.child)
    worked = compile_step(PLAYBOOK, "one")
    return [*parts, worked.input, *(part for task in worked.tasks for part in parts_of_task(task))]


def missing_lines(part: object) -> set[tuple[str, str]]:
    """Render a part, giving it what it misses until it is content, and return each missing name with the line told."""
    found = set()
    render = getattr(getattr(part, "value", part), "render", None)
    known: dict[str, object] = {}
    while render is not None:
        try:
            render(known)
            break
        except TemplateFailed as error:
            missing, told = re.search(r"'(\w+)' is undefined in (?s:.*) \((.*)\)$", error.message).groups()  # type: ignore[union-attr]
            found.add((missing, told))
            known[missing] = 1
    return found


def failing_lines() -> list[tuple[str, str]]:
    """Return every name that is missing anywhere, with the line told."""
    return sorted({found for part in compiled_parts() for found in missing_lines(part)})


def test_every_template_that_fails_names_its_line() -> None:
    expected = set(re.findall(r"line_\d+", TEXT))
    told = failing_lines()
    assert {missing for missing, _ in told} == expected
    assert told == sorted((word, f"line {word.removeprefix('line_')} of the playbook") for word in expected)


def test_time_limits_claims_and_keychains_name_their_line() -> None:
    text = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: lines, path: demo/lines}
keychain:
  - name: shop
    kind: oauth2
    auth: "{{ line_7 }}"
    endpoint: http://x/
    data:
      scopes: [a, "{{ line_10 }}"]
workflow:
  - step: one
    loop:
      cursor:
        kind: postgres
        auth: "{{ line_16 }}"
        claim: |
          SELECT 1
          WHERE '{{ line_19 }}' = ''
        options: {pool_size: "{{ line_20 }}"}
      iterator: row
      spec: {mode: cursor}
    spec: {policy: {lifecycle: {timeout_s: "{{ line_23 }}"}}}
    tool: {kind: noop}
"""
    parsed = parse(text).playbook
    found = set()

    def render(value: object, _: object, where: str, origins: object) -> object:
        found.update(missing_lines(compile_value(value, where, origins)))
        return value

    kept = rendered(parsed.keychain[0], render, {})
    assert kept.origins is None, "what is kept for a renewal says nothing of the file"
    step = compile_step(parsed, "one")
    for part in (step.timeout, step.claim):
        found.update(missing_lines(part))
    expected = set(re.findall(r"line_\d+", text))
    assert found == {(word, f"line {word.removeprefix('line_')} of the playbook") for word in expected}


def test_a_folded_template_is_told_by_the_line_it_begins_in() -> None:
    text = TEXT.replace('        json: "{{ line_34 }}"\n', '        json: "{{ 1 +\n\n          folded }}"\n')
    task = compile_step(parse(text).playbook, "one").tasks[0]
    with pytest.raises(TemplateFailed, match=r"'folded' is undefined in (?s:.*) \(line 34 of the playbook\)"):
        task.options.render({"line_31": 1, "line_33": 1})
