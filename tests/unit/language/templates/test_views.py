"""Results in templates: their names before a dot, their value alone, and what may be missing."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.plan.planned import reads_of
from noetl.engine.plan.state import Result
from noetl.engine.plan.template_names import view
from noetl.engine.tools.outcome import Outcome, failed
from noetl.errors import TemplateFailed
from noetl.language.templates.scopes import Names, apply_set, names_of
from noetl.language.templates.template import compile_value, compiled, holds

ROWS = {"status": "ok", "rows": [{"id": 4}], "row_count": 1, "columns": ["id"], "statement_count": 2}
EARLIER = {"status": "ok", "rows": [], "row_count": 3, "columns": []}
ANSWER = {"status_code": 200, "headers": {}, "url": "u", "elapsed": 0.1, "data": {"items": [1]}}


@pytest.fixture
def names() -> Names:
    results = {
        "query": view(Result(data={**ROWS, "command_0": EARLIER})),
        "fetch": view(Result(data=ANSWER)),
        "listed": view(Result(data=[1, 2])),
        "nothing": view(Result()),
        "number": view(Result(data=7)),
        "own": view(Result(data={"result": "own"})),
    }
    made = names_of(
        execution_id=1, workload={"page": 1, "w": {}}, ctx={"page": 2}, results=results,
        steps=[*results, "later", "other"], input={"given": {"n": 5}, "page": 9}, output=Outcome(data={
            "n": 3, "status": "own", "error": "own"}).as_output(attempt=1, duration_ms=1.0),
    )  # fmt: skip
    assert apply_set(made, {"deep.a": 1}) == {"ctx.deep.a": 1}
    return made


def by_jinja(source: str) -> str:
    """Return a template that our own closures leave to Jinja: what its first statement sets is not used."""
    return f"{{% set unused = 1 %}}{source}"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        # a result alone is its value
        ("{{ listed }}", [1, 2]),
        ("{{ listed | length }}", 2),
        ("{{ listed + [3] }}", [1, 2, 3]),
        ("{{ 2 in listed }}", True),
        ("{{ listed[:1] + (listed or later)[1:] }}", [1, 2]),
        ("{{ number + 1 }}", 8),
        ("{{ number == 7 }}", True),
        (
            "{{ fetch == {'status_code': 200, 'headers': {}, 'url': 'u', 'elapsed': 0.1, 'data': {'items': [1]}} }}",
            True,
        ),
        ("{{ fetch is mapping }}", True),
        ("{{ [number, listed] | tojson }}", "[7,[1,2]]"),
        ("{{ nothing is none }}", True),
        # and has its names before a dot
        ("{{ listed.data }}", [1, 2]),
        ("{{ listed.result[1] + query.result.rows[0].id }}", 6),
        ("{{ own.result }}", "own"),
        ("{{ listed[1] + listed['data'][0] }}", 3),
        ("{{ listed.status }}", "ok"),
        ("{{ nothing.status }}", "ok"),
        ("{{ fetch.get('status', 'x') }}{{ fetch.get('nope', 'y') }}", "oky"),
        ("{{ (listed | default([])).status }}", "ok"),
        ("{{ (later or listed).status }}", "ok"),
        ("{{ (listed if listed else later).data[0] }}", 1),
        ("{{ query._ref is defined }}", False),
        ("{{ query._store | default('inline') }}", "inline"),
        # entries that repeat others
        ("{{ query.command_1.rows[0].id }}", 4),
        ("{{ query.data.command_1.row_count + query.command_0.row_count }}", 4),
        ("{{ query['command_1'].status }}", "ok"),
        ("{{ query.command_2 is defined }}", False),
        ("{{ fetch.body['items'][0] + fetch.data['items'][0] }}", 2),
        ("{{ listed.body is defined }}", False),
        # the outcome's own names win
        ("{{ output.n }}", 3),
        ("{{ output.status }} {{ output.data.status }} {{ output.error is none }}", "ok own True"),
        ("{{ output }}", {"n": 3, "status": "own", "error": "own"}),
        ("{{ output.data == output }}", True),
        # what may be missing
        ("{{ nope.a.b | default(1) }}", 1),
        ("{{ nope['a'][0].b | d(1) }}", 1),
        ("{{ w.a.b is defined }}", False),
        ("{{ w.a.b is undefined }}", True),
        ("{{ query.rows[9].id | default('none') }}", "none"),
        ("{{ later.rows[0] | default('none') }}", "none"),
        ("{{ (nope.a | default({})).b | default(2) }}", 2),
        ("{{ query.rows[w.at | default(0)].id | default(3) }}", 4),
        ("{{ output.error.kind | default('none') }}", "none"),
        ("{{ nope.a.b | default(later.x | default(5)) }}", 5),
        # a step that has not run
        ("{{ 'ran' if later else 'not' }}", "not"),
        ("{{ later.c if later else number.data }}", 7),
        ("{{ not later }}", True),
        ("{{ later or other }}", False),
        ("{{ later and later.rows[0].n > 1 }}", False),
        ("{{ 'ran' if nothing else 'not' }}", "ran"),
        ("{{ later is defined }}", False),
        ("{{ later | default({}) }}", {}),
        # the order of names
        ("{{ page }}", 2),
        ("{{ workload.page }}", 1),
        ("{{ deep.a }}", 1),
        ("{{ given.n }}", 5),
    ],
)
def test_a_result_in_a_template(source: str, value: Any, names: Names) -> None:
    """INV-168, INV-169."""
    assert compiled(source).render(names) == value
    expected = value if isinstance(value, str) else str(value)
    assert compiled(by_jinja(source)).render(names) == expected


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("{{ nope.a.b }}", "'nope'"),
        ("{{ w.a.b }}", "'w.a'"),
        ("{{ nope.a | default(1) + w.x }}", "'w.x'"),
        ("{{ nope.a | length | default(1) }}", "'nope'"),
        ("{{ later }}", r"'later' is undefined \(the step has not run\)"),
        ("{{ later.c }}", r"'later' is undefined \(the step has not run\)"),
        ("{{ later == 1 }}", "'later'"),
        ("{{ [later] }}", "'later'"),
        ("{{ later ~ 'x' }}", "'later'"),
        ("{{ nope if nope else 1 }}", "'nope'"),
        ("{{ output.m }}", r"'output\.m'"),
        ("{{ query.command_5.rows }}", r"'query\.command_5'"),
        ("{{ listed.nope }}", r"'listed\.nope'"),
        ("{{ query._ref }}", r"'query\._ref'"),
        ("{{ given.m }}", r"'given\.m'"),
    ],
)
def test_any_other_use_of_a_missing_name_is_an_error(source: str, missing: str, names: Names) -> None:
    for text in (source, by_jinja(source)):
        with pytest.raises(TemplateFailed, match=f"here, field f: {missing}"):
            compile_value(text, "here, field f").render(names)


@pytest.mark.parametrize(
    ("source", "is_met"),
    [
        ("{{ later }}", False), ("{{ nothing }}", True), ("{{ listed }}", True), ("{{ number }}", True),
        ("{{ later or other }}", False), ("{{ listed[:1] }}", True), ("{{ later if page == 2 else number }}", False),
    ],
)  # fmt: skip
def test_a_condition_takes_a_step_for_whether_it_ran(source: str, is_met: bool, names: Names) -> None:
    assert holds(compile_value(source, "w", reading="condition").render(names), "arc") is is_met


def test_an_answer_tells_its_status_as_the_error_of_a_step_does() -> None:
    told = failed("not_found", "no", http_status=404).as_output(attempt=1, duration_ms=1.0)
    seen = names_of(execution_id=1, output=told)
    assert compiled("{{ [output.error.status, output.error.http_status] }}").render(seen) == [404, 404]
    assert compiled("{{ output.error.status is defined }}").render(seen) is True


def test_rows_of_a_loop_are_fetched_only_for_who_looks_at_them() -> None:
    assert reads_of("{{ output.results[0] }}").rows == {"output"}
    assert reads_of("{{ output.status == 'ok' and output.total > 1 and a._store is defined }}").rows == frozenset()
    assert reads_of("{{ a._store is defined }}").data == frozenset()


def test_a_name_of_a_step_that_ran_stays_when_a_value_of_ctx_is_called_so(names: Names) -> None:
    apply_set(names, {"number": 1, "later": 2})
    assert compiled("{{ number }} {{ ctx.number }} {{ later }}").render(names) == "7 1 2"
    row = names.for_row("item", {"n": 1}, 0)
    apply_set(row, {"item": 5, "page": 3})
    assert compiled("{{ item.n }} {{ ctx.item }} {{ page }} {{ workload.page }}").render(row) == "1 5 3 1"
    assert compiled("{{ page }}").render(names) == 2, "other rows do not see it"
