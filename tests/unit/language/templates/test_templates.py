import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import nodes

from noetl.errors import TemplateFailed, Unavailable
from noetl.language.templates import expressions
from noetl.language.templates.bounds.weights import OUTPUT_MAX
from noetl.language.templates.result_view import View
from noetl.language.templates.sandbox import SANDBOX
from noetl.language.templates.scopes import Names
from noetl.language.templates.template import compile_value, compiled, holds, is_template, names_in

NAMES: dict[str, Any] = {
    "iter": {"page": 3, "job": {"id": 7, "url": "/x"}, "_index": 0, "more": True},
    "output": {"status": "ok", "error": None, "data": {"items": [1, 2], "keys": "k", "rows": [{"n": 5}]}},
    "api": "http://h",
    "zip": "007",
    "nothing": None,
}


def rendered(source: str, **more: Any) -> Any:
    return compiled(source).render({**NAMES, **more})


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ iter.page }}", 3),
        ("{{ zip }}", "007"),
        ("{{ nothing }}", None),
        ("{{ iter.more }}", True),
        ("{{ iter.job }}", {"id": 7, "url": "/x"}),
        ("{{ iter._index }}", 0),
        ("{{ output.data.rows[0].n + 1 }}", 6),
        ("{{ output.data.rows[0]['n'] }}", 5),
        ("{{ output.data['rows'][-1].n }}", 5),
        ("{{ iter.page }} ", 3),
        ("\n{{ iter.page }}\n", 3),
        ("{{ iter.page }}!", "3!"),
        ("{{ iter.page }}{{ iter.page }}", "33"),
        ("{{ api }}/a/{{ iter.job.id }}", "http://h/a/7"),
        ("{{ iter.page > 2 and output.status == 'ok' }}", True),
        ("{{ 1 < iter.page < 5 }}", True),
        ("{{ 'x' if iter.more else 'y' }}", "x"),
        ("{{ iter.absent | default('d') }}", "d"),
        ("{{ iter.absent is defined }}", False),
        ("{{ not iter.more }}", False),
        ("{{ iter.more | string | lower == 'true' }}", True),
        ("{{ [iter.page, zip] }}", [3, "007"]),
        ("{{ {'a': iter.page} }}", {"a": 3}),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ iter.page ~ zip }}", "3007"),
        ("{{ output.data.rows | map(attribute='n') }}", [5]),
        ("{{ output.data.rows | map(attribute='n') | list }}", [5]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ 'a,b'.split(',') }}", ["a", "b"]),
        ("{{ 'abc'[1:] }}", "bc"),
        ("{{ '%05d' | format(iter.page) }}", "00003"),
        ("{{ '{:>5}'.format(iter.page) }}", "    3"),
        ("{{ 'a b 1234567 c' | replace('b', 'x') }}", "a x 1234567 c"),
        ("{% for row in output.data.rows %}[{{ row.n }}]{% endfor %}", "[5]"),
        ("{# note #}{{ iter.page }}", 3),
    ],
)
def test_a_template_gives_an_expressions_own_value_and_text_otherwise(source: str, value: Any) -> None:
    result = rendered(source)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("text", ["1", "true", "[1]", '{"a": 1}', "None", "1.5", "007"])
def test_text_is_never_read_as_something_else(text: str) -> None:
    """INV-41."""
    assert rendered("{{ value }}", value=text) == text
    assert rendered("{{ value }}{{ empty }}", value=text, empty="") == text
    assert compile_value(text, "x").render({}) == text


def test_a_mappings_entry_comes_before_its_methods() -> None:
    assert rendered("{{ output.data.items }}") == [1, 2]
    assert rendered("{{ output.data.keys }}") == "k"
    assert rendered("{{ output.data.items | length }}-{{ iter.job.items() | length }}") == "2-2"


@pytest.mark.parametrize(
    "source", ["{{ iter.job.items }}", "x{{ iter.job.items }}", "{% if 1 %}{{ iter.job.items }}{% endif %}"]
)
def test_a_bare_method_is_an_error_and_not_text(source: str) -> None:
    with pytest.raises(TemplateFailed, match="'items' is a method"):
        rendered(source)


@pytest.mark.parametrize(
    ("source", "said", "missing"),
    [
        ("{{ x.y }}", "'x' is undefined in {{ x.y }} (line 1 of the template)", "x.y"),
        ("a\nb {{ iter.nope }}", "'iter.nope' is undefined in {{ iter.nope }} (line 2 of the template)", "iter.nope"),
        ("{{ output.error.knid }}", "'output.error.knid' is undefined", "output.error.knid"),
        ("{{ output.data.rows[4].n }}", "'output.data.rows[4]' is undefined", "output.data.rows[4].n"),
        ("{{ absent | default(1) }} {{ gone }}", "'gone' is undefined in {{ gone }}", "gone"),
        (
            "at {{ now() }}",
            "'now' is undefined (templates have no clock and no chance, for a replay must come to",
            "now",
        ),
        ("{{ [iter.page, gone] }}", "'gone' is undefined", "gone"),
        ("{{ {'a': {'b': gone}} }}", "'gone' is undefined", "gone"),
        ("{{ [gone] | string }}", "'gone' is undefined", "gone"),
        ("{{ dict(a=gone) }} {{ api }}", "'gone' is undefined", "gone"),
        ("{% if 1 %}{{ [gone] }}{% endif %}", "'gone' is undefined", "gone"),
        ("{{ dict(a=gone) }}", "'gone' is undefined", "gone"),
        ("{{ output.data.rows | map(attribute='zz') | list }}", "'zz' is undefined", "zz"),
        ("{% for row in output.data.rows %}\n{{ row.q }}{% endfor %}", "'q' is undefined in {{ row.q }} (line 2", "q"),
    ],
)
def test_what_is_undefined_is_named_with_its_line(source: str, said: str, missing: str) -> None:
    with pytest.raises(TemplateFailed) as failure:
        compile_value({"url": source}, "step fetch, task get").render(NAMES)
    assert failure.value.message.startswith("step fetch, task get, field url: ")
    assert said in failure.value.message
    assert failure.value.details["missing"] == missing
    assert failure.value.details["where"] == "step fetch, task get, field url"


@pytest.mark.parametrize(
    "source",
    [
        "{{ value | int(base=99) + value }}",
        "{{ iter[value].x }}",
        "{{ iter[value] }}",
        "{{ value.encode().decode('xx') }}",
    ],
)
def test_an_error_never_quotes_a_value(source: str) -> None:
    with pytest.raises(TemplateFailed) as failure:
        rendered(source, value="hunter2secret")
    assert "hunter2" not in repr((failure.value.args, failure.value.details))
    assert failure.value.__cause__ is None
    assert failure.value.__context__ is None


@pytest.mark.parametrize(
    "source", ["{{ ", "{% if %}", "{{ x | nofilter }}", "{{ x | random }}", "{% for %}", "{{ 1 +* }}"]
)
def test_a_template_that_cannot_be_read_says_so_with_its_line(source: str) -> None:
    with pytest.raises(TemplateFailed, match="line 2 of the template"):
        compiled("\n" + source)
    with pytest.raises(TemplateFailed, match=r"^step a, field b: "):
        compile_value(source, "step a, field b")


@pytest.mark.parametrize(
    "source",
    [
        "{{ iter.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ api.__init__.__globals__ }}",
        "{{ output.data.items.append(1) }}",
        "{{ iter.update({}) }}",
        "{{ iter | attr('__class__') }}",
        "{{ '{0.__class__}'.format(api) }}",
        "{{ now() }}",
        "{{ lipsum() }}",
        "{% include 'x' %}",
        "{{ 'x' | encrypt_secret }}",
        "{{ 1 / 0 }}",
        "{{ iter + 1 }}",
    ],
)
def test_what_templates_may_not_or_cannot_do_is_refused(source: str) -> None:
    before = pickle.dumps(NAMES)
    with pytest.raises(TemplateFailed):
        rendered(source)
    assert pickle.dumps(NAMES) == before


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 99999999 }}",
        "{{ 99999999 * 'a' }}",
        "{{ [1] * 99999999 }}",
        "{{ 9 ** 99999999 }}",
        "{{ '%99999999d' % 3 }}",
        "{{ '%*d' % (99999999, 3) }}",
        "{{ '{:99999999}'.format(3) }}",
        "{{ '{:{}}'.format(3, 99999999) }}",
        "{{ 'a'.ljust(99999999) }}",
        "{{ 'a' | center(99999999) }}",
        "{{ 'a' | indent(99999999, true) }}",
        "{{ '%99999999d' | format(3) }}",
        "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
        "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
        "{{ range(99999999) }}",
        "{% set n = namespace(t='aaaaaaaa') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
        "{% set n = namespace(t='aaaaaaaa') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
        "{{ long }}{{ long }}",
    ],
)
def test_a_value_larger_than_the_bound_is_refused_before_it_is_made(source: str) -> None:
    with pytest.raises(TemplateFailed, match=r"large|long|Range too big"):
        rendered(source, long="x" * (OUTPUT_MAX // 2 + 1))


def test_json_is_compact_plain_and_complete() -> None:
    assert rendered("{{ value | tojson }}", value={"a": [1, "<'é&>"], "b": None}) == '{"a":[1,"<\'é&>"],"b":null}'
    assert rendered('{{ value | tojson | replace("\'", "\'\'") }}', value="it's") == "\"it''s\""
    assert rendered("{{ value | tojson }}", value=2**80) == str(2**80)
    assert rendered("{{ value | tojson(indent=2) }}", value=[1]) == "[\n  1\n]"
    assert rendered("{{ (1, 2) | tojson }}{{ range(2) | tojson }}") == "[1,2][0,1]"
    with pytest.raises(TemplateFailed, match="no JSON form"):
        rendered("{{ value | tojson }}", value=object())
    with pytest.raises(TemplateFailed, match="'gone' is undefined"):
        rendered("{{ gone | tojson }}")


def test_base_64_goes_both_ways() -> None:
    assert rendered("{{ 'ü' | b64encode }}") == "w7w="
    assert rendered("{{ 'w7w=' | b64decode }}") == "ü"
    with pytest.raises(TemplateFailed, match="not base 64"):
        rendered("{{ '%%' | b64decode }}")


class Held:
    """A value that is fetched when it is looked up."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __noetl_value__(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    "source",
    [
        "{{ big.rows[0].n }}",
        "{{ box.big.rows[0].n }}",
        "{{ boxes[0].rows[0].n }}",
        "{{ big['rows'] | map(attribute='n') | first }}",
        "{{ big.get('rows')[0].n }}",
        "{{ big.rows[0:1][0].n }}",
    ],
)
def test_a_value_held_elsewhere_is_fetched_when_it_is_looked_up(source: str) -> None:
    big = Held({"rows": [{"n": 4}]})
    assert rendered(source, big=big, box={"big": big}, boxes=[big]) == 4
    assert rendered("{{ box | tojson }}", box={"big": big}) == '{"big":{"rows":[{"n":4}]}}'


@pytest.mark.parametrize("source", ["{{ big.rows }}", "x {{ big.rows }}", "{{ big.get('rows') }}"])
def test_a_value_that_cannot_be_fetched_is_no_fault_of_the_template(source: str) -> None:
    with pytest.raises(Unavailable):
        rendered(source, big=Held(Unavailable("the store does not answer")))


def test_a_template_knows_the_names_and_paths_it_asks_for() -> None:
    template = compiled(
        "{{ fetch.rows[0].id }} {% for x in ctx.xs %}{{ x.y }}{% endfor %}{{ name.upper() }}{{ range(2) }}"
    )
    assert template.names == {"fetch", "ctx", "name"}
    assert template.paths == {("fetch", "rows", 0, "id"), ("ctx", "xs"), ("name",)}


def test_the_names_in_a_nested_value_are_all_found() -> None:
    assert names_in({"a": ["{{ x.y }}", {"{{ k }}": "{{ z }}"}], "b": 1, "c": "text"}) == {"x", "k", "z"}


def test_the_same_text_is_compiled_once() -> None:
    assert compiled("{{ once }}") is compiled("{{ once }}")


def test_a_nested_value_keeps_its_order_and_shares_its_constant_parts() -> None:
    constant = {"deep": [1, {"x": "y"}]}
    value = compile_value({"a": "{{ iter.page }}", "b": constant, "c": ["{{ zip }}", 2], "{{ api }}": 1}, "step s")
    made = value.render(NAMES)
    assert list(made.items()) == [("a", 3), ("b", constant), ("c", ["007", 2]), ("http://h", 1)]
    assert made["b"] is constant
    assert not value.is_constant
    assert compile_value(constant, "step s").is_constant
    ordered = compile_value({"a": "{{ iter.page }}", "b": constant}, "step s")
    assert list(ordered.render(NAMES)) == ["a", "b"]


def test_an_error_deep_in_a_value_names_the_place() -> None:
    with pytest.raises(TemplateFailed, match=r"^step s, task t, field params\.ids\[1\]: 'gone' is undefined"):
        compile_value({"params": {"ids": [1, "{{ gone }}"]}}, "step s, task t").render({})


@pytest.mark.parametrize("value", [False, 0, 0.0, "", " ", None, [], {}, "false", "False ", "0", "no", "NONE"])
def test_an_arc_is_false_for_what_is_plainly_false(value: Any) -> None:
    assert not holds(value, "arc")
    assert not holds(value, "admit")
    assert not holds(value, "policy")


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", " TRUE", "1", "Yes"])
def test_a_policy_holds_for_what_is_plainly_true(value: Any) -> None:
    assert holds(value, "policy")
    assert holds(value, "arc")


@pytest.mark.parametrize("value", [2, "ready", [0], {"a": 1}, "off"])
def test_what_is_neither_holds_for_an_arc_and_not_for_a_policy(value: Any) -> None:
    assert holds(value, "arc")
    assert holds(value, "admit")
    assert not holds(value, "policy")


@given(st.text().filter(lambda text: not is_template(text)))
def test_text_without_a_mark_renders_to_itself(text: str) -> None:
    assert compiled(text).render({}) == text
    assert compile_value(text, "x").render({}) == text


fragments = st.sampled_from(
    ["{{", "}}", "{%", "%}", " if ", " endif ", " for x in ", " endfor ", "x", "y.z", "|", "int", "default", "(", ")", "[", "]",
     "'", "1", "-1", " + ", " ~ ", " * ", " ** ", " % ", " == ", " in ", ".", ",", " is defined ", " and ", " not ", "\n", "{#", "#}", "é"]
)  # fmt: skip
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["z", "items", "_a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(fragments, max_size=14).map("".join), st.dictionaries(st.sampled_from(["x", "y"]), plain_values))
def test_no_template_raises_anything_but_its_own_error(source: str, names: dict[str, Any]) -> None:
    with suppress(TemplateFailed):
        value = compiled(source).render(names)
        assert not any(text in repr(value) for text in ("Undefined", "<built-in", "<generator"))


paths = st.sampled_from(["x", "y.z", "x[0]", "y['items']", "x.z.items", "1", "'a'", "none", "[x]", "{'k': y}"])
expressions_of_names = st.recursive(
    paths,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "-", "==", "!=", "<", "in", "and", "or", "~", "%"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(inner, st.sampled_from(["int", "string", "default(2)", "length", "tojson", "lower", "first"])).map(
            lambda parts: f"({parts[0]} | {parts[1]})"
        ),
        inner.map(lambda part: f"(not {part})"),
        inner.map(lambda part: f"({part} is defined)"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
    ),
    max_leaves=5,
)


seen_values = plain_values | plain_values.map(
    lambda value: View(value, before={"_a": 1}, beside={"z": "ok", "data": value})
)
"""Values, and results with names before and beside them."""


@pytest.mark.parametrize("reading", ["value", "condition", "whole"])
@given(expressions_of_names, st.dictionaries(st.sampled_from(["x", "y"]), seen_values), st.sets(st.sampled_from("xy")))
def test_closures_and_jinja_agree(
    reading: expressions.Reading, expression: str, seen: dict[str, Any], steps: set[str]
) -> None:
    names = Names(seen, steps=steps)
    results = []
    for by in (expressions.value_of, expressions._value_by_jinja):
        # Each gets a tree of its own: what is left to Jinja is changed on the way.
        outputs = SANDBOX.parse(f"{{{{ {expression} }}}}").body[0]
        assert isinstance(outputs, nodes.Output)
        try:
            value = by(outputs.nodes[0], reading)(names)
            results.append(("value", value.value if isinstance(value, View) else value))
        except expressions.FailedAt as failed:
            results.append(("error", type(failed.error)))
    assert results[0] == results[1]
    assert repr(results[0]) == repr(results[1])
