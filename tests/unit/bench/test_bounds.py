"""The floor of `bounds.item_ms` renders the same as ever, and pays for nothing."""

from __future__ import annotations

import pytest
from bench.bounds import without_bounds

from noetl.language.templates.bounds.meter import METER
from noetl.language.templates.template import compile_value

NAMES = {"names": ["north", "east"] * 20, "text": "a long text " * 40}
OPEN = 100_000


def paid(template: str) -> tuple[object, int]:
    """Return what a template comes to, and the steps that it took."""
    render = compile_value(template, "test").render
    METER.left, METER.rest, METER.is_inline, METER.look, METER.is_open = OPEN, 0, False, None, True
    try:
        return render(NAMES), OPEN - METER.left
    finally:
        METER.is_open = False


@pytest.mark.parametrize(
    "template",
    [
        "{{ names | join(', ') | upper }}",
        "{{ text + text }}",
        "{{ text ~ names }}",
        "{{ names[3] }}",
        "{{ text.split(' ') | length }}",
        "{{ 'west' in names }}",
        "{{ names[1:3] }}",
        "{% for name in names %}{{ name }}{% endfor %}",
        "{{ '%s and %s' % (text, text) }}",
    ],
)
def test_without_bounds_a_template_comes_to_the_same_and_pays_nothing(template: str) -> None:
    value, steps = paid(template)
    assert steps > 0
    with without_bounds():
        assert paid(template) == (value, 0)
    assert paid(template) == (value, steps)
