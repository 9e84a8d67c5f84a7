"""Templates that would go on for ever or make more than a machine holds are stopped, deterministically (INV-187)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.errors import TemplateFailed, TemplateUnbounded
from noetl.language.templates.bounds import meter
from noetl.language.templates.bounds.meter import METER, Lengthy, budget, open_budget, spend
from noetl.language.templates.template import compile_value
from noetl.testing.attacks.documents import ENDLESS_TEMPLATES, ENORMOUS_TEMPLATES

WHERE = "step fetch, field when"


def rendered(source: str, **names: Any) -> Any:
    return compile_value(source, WHERE).render(names)


@pytest.mark.parametrize("name", ENDLESS_TEMPLATES)
def test_a_template_that_would_not_end_is_stopped_after_its_steps(name: str) -> None:
    """INV-187: loops, recursion and every filter, test, operator and method pay for what they do."""
    with budget(100_000), pytest.raises(TemplateFailed, match=r"step fetch, field when: .*line 1 of the template"):
        rendered(ENDLESS_TEMPLATES[name])


@pytest.mark.parametrize("name", ENORMOUS_TEMPLATES)
def test_a_template_that_would_fill_the_memory_is_refused_before_it_does(name: str) -> None:
    """INV-187: what an operation makes is known before it is made."""
    with budget(400_000), pytest.raises(TemplateFailed, match=r"step fetch, field when: .*line 1 of the template"):
        rendered(ENORMOUS_TEMPLATES[name])


def test_an_error_says_the_place_and_what_to_do() -> None:
    """INV-187: the error names field and line, and quotes no value."""
    with budget(1_000), pytest.raises(TemplateUnbounded) as failed:
        rendered("first\n{% for x in range(9999) %}{{ secret }}{% endfor %}", secret="hunter2")
    assert "step fetch, field when: it takes more steps than a template may" in failed.value.message
    assert "line 2 of the template" in failed.value.message
    assert "hunter2" not in failed.value.message
    assert failed.value.hint is not None
    assert "python task" in failed.value.hint


def test_the_same_template_costs_the_same_each_time() -> None:
    """INV-187: a decision that is made again comes to the same, on any machine."""
    source = "{% for x in rows if x.n > 1 %}{{ x.name | upper ~ ',' }}{% endfor %}{{ rows | tojson }}"
    rows = [{"n": n, "name": "n" * n} for n in range(100)]

    def cost() -> int:
        with budget(1_000_000):
            rendered(source, rows=rows)
            return 1_000_000 - METER.left - METER.rest

    assert cost() == cost() > 100


@pytest.mark.parametrize(
    "source",
    [
        "{% for x in rows %}{% endfor %}",
        "{% for x in rows if false %}{% endfor %}",
        "{% for x in rows recursive %}{% endfor %}",
        "{{ rows | select('eq', -1) | list }}",
        "{{ rows | map('abs') | list }}",
        "{{ rows | sort }}",
        "{{ rows[1:] }}",
        "{{ -1 in rows }}",
        "{{ rows == others }}",
        "{{ rows + others }}",
        "{{ [rows] }}",
        "{{ rows.count(-1) }}",
        "{{ rows | tojson }}",
    ],
)
def test_whatever_goes_over_a_list_pays_for_its_items(source: str) -> None:
    """INV-187: no way of reading a thousand items costs less than a step for each."""
    with budget(1_000_000):
        rendered(source, rows=list(range(1_000)), others=list(range(1_000)))
        assert 1_000_000 - METER.left - METER.rest >= 1_000


def test_a_rendering_outside_any_budget_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-187: nobody has to remember to open one."""
    monkeypatch.setattr(open_budget, "__defaults__", (10_000,))
    with pytest.raises(TemplateUnbounded):
        rendered(ENDLESS_TEMPLATES["nested loops"])
    assert not METER.is_open
    assert rendered("{{ range(3) | list }}") == [0, 1, 2]


def test_a_template_cannot_give_itself_steps() -> None:
    """INV-187: what the sandbox writes into templates can be named by one, and is paid for all the same."""
    with budget(50_000), pytest.raises(TemplateUnbounded):
        rendered("{% for x in range(99999) %}{{ [-99999] | map('turn') | list }}{{ -99999 | turn }}{% endfor %}")


def test_an_inline_budget_is_left_by_what_no_handler_catches() -> None:
    """INV-188: what is too long for the event loop is not taken for a failure of the template."""
    with budget(1_000, is_inline=True), pytest.raises(Lengthy):
        rendered("{% for x in range(9999) %}{% endfor %}")
    assert not METER.is_open


def test_a_clock_that_is_given_is_looked_at_while_steps_are_taken() -> None:
    """INV-187: time is the second net, and comes from outside."""
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks > 3:
            raise meter.BoundExceeded("it takes longer than 0 seconds")

    with budget(look=look), pytest.raises(TemplateUnbounded, match="longer than 0 seconds"):
        rendered(ENDLESS_TEMPLATES["nested loops"])


def test_what_fails_leaves_a_reserve_once() -> None:
    """INV-187: an execution that fails by its bound may still enter its final step."""
    with budget(1_000):
        with pytest.raises(meter.StepsSpent):
            spend(1_001)
        assert rendered("{% for x in range(3) %}{{ x }}{% endfor %}") == "012"
        with pytest.raises(TemplateUnbounded):
            rendered(ENDLESS_TEMPLATES["nested loops"])
        with pytest.raises(TemplateUnbounded):
            rendered("{% for x in range(3) %}{{ x }}{% endfor %}")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ rows | map(attribute='id') | list }}", [1, 2]),
        ("{{ rows | selectattr('id', 'gt', 1) | map(attribute='id') | join(', ') }}", "2"),
        ("{{ '%s is %5.2f' % ('x', 1.5) }}", "x is  1.50"),
        ("{{ '%(a)s%%' % {'a': 1} }}", "1%"),
        ("{{ '{:>5}|{a}'.format(1, a=2) }}", "    1|2"),
        ("{{ '{{}}'.format() }}", "{}"),
        ("{% for x in rows recursive %}{{ x.id }}{% endfor %}", "12"),
        (
            "{% for x in rows %}{{ loop.index }}/{{ loop.length }}{% if not loop.last %},{% endif %}{% endfor %}",
            "1/2,2/2",
        ),
        ("{{ 'a b c'.split() | reverse | list }}", ["c", "b", "a"]),
        ("{{ ','.join(['a', 'b']) }}", "a,b"),
        ("{{ 'abc' | list }}", ["a", "b", "c"]),
        ("{{ [3, 1, 2] | sort }}", [1, 2, 3]),
        ("{{ [[1], [2]] | sum(start=[]) }}", [1, 2]),
        ("{{ [1, 2, 3] | batch(2, 0) | list }}", [[1, 2], [3, 0]]),
        ("{{ 2 in rows | map(attribute='id') }}", True),
        ("{{ rows[0:1] }}", [{"id": 1}]),
        ("{{ 2 ** 100 * 3 }}", 2**100 * 3),
        ("{{ [1, 2] * 2 }}", [1, 2, 1, 2]),
        ("{{ 1.26 | round(1) }}", 1.3),
        ("{{ {'a': [1]} | tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
    ],
)
def test_everyday_templates_come_to_what_they_did(source: str, value: Any) -> None:
    """INV-187: bounds change no value."""
    assert rendered(source, rows=[{"id": 1}, {"id": 2}]) == value
