"""Long templates and wide values are refused or paid for, and what is kept of templates has a size (INV-187, INV-188)."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable

import pytest

from noetl.engine.catalog.evaluation import at_once
from noetl.errors import PlaybookInvalid, TemplateFailed, TemplateUnbounded
from noetl.language.grammar.problems import Problem
from noetl.language.playbook.checked_playbook import CheckedPlaybook
from noetl.language.templates.bounds.cache import KeptByLength
from noetl.language.templates.bounds.meter import BoundExceeded, Lengthy, budget
from noetl.language.templates.template import _KEPT, CHARACTERS_MAX, Template, compile_value, compiled, names_in
from noetl.testing.attacks.documents import longest_templates

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a, path: a/b}\nworkflow:\n"


def test_a_template_that_is_too_long_is_refused_where_it_stands() -> None:
    """INV-187: a check and a registration name the line, and nothing is made of it."""
    text = "{{ execution_id }}" * (CHARACTERS_MAX // 18 + 1)
    with pytest.raises(PlaybookInvalid, match="more than 20000 characters in expressions and blocks") as refused:
        CheckedPlaybook(HEAD + f"  - step: a\n    input:\n      long: '{text}'\n    tool: {{kind: noop}}\n")
    found: list[Problem] = refused.value.details["problems"]  # type: ignore[assignment]
    assert 7 in [problem.line for problem in found]
    with pytest.raises(TemplateFailed, match=r"^step a, field long: it has more than 20000 characters"):
        compile_value(text, "step a, field long")
    assert compile_value("x" * (CHARACTERS_MAX + 1), "step a").is_constant


def test_the_text_between_expressions_may_be_long() -> None:
    """INV-187: a long SQL script with a few names in it is no danger; braces in strings hide nothing."""
    script = "SELECT 1; -- {{ day }}\n" + "INSERT INTO t VALUES (1);\n" * 10_000
    assert compiled(script).names == {"day"}
    with pytest.raises(TemplateFailed, match="a template may have 500000"):
        compiled(script * 2)
    hidden = '{{ "}}" ~ ' + " ~ ".join(["'aaaaaaaa'"] * 2_000) + " }}"
    with pytest.raises(TemplateFailed, match="more than 20000 characters"):
        compiled(hidden)


@pytest.mark.parametrize("name", longest_templates(100))
def test_the_longest_template_takes_little_memory(name: str) -> None:
    """INV-187: also while it is made."""
    source = longest_templates(CHARACTERS_MAX)[name]
    tracemalloc.start()
    try:
        Template(source)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_the_longest_template_does_not_hold_the_interpreter() -> None:
    """INV-188: while it is made other threads go on; measured by the processor's time between two of their turns."""
    source = longest_templates(CHARACTERS_MAX)["blocks and values"]
    assert min(_longest_hold(lambda: Template(source)) for _ in range(3)) < 0.4


def _longest_hold(work: Callable[[], object]) -> float:
    thread = threading.Thread(target=work)
    thread.start()
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    longest = last = 0.0
    while thread.is_alive():
        try:
            now = time.clock_gettime(clock)
        except OSError:
            break
        longest, last = max(longest, now - last), now
        thread.join(0.0005)
    return longest


def test_the_time_of_a_thread_is_looked_at_while_templates_are_made() -> None:
    """INV-187: a playbook of nothing but templates is bounded by the clock, as what they do is."""

    def look() -> None:
        raise BoundExceeded("it takes longer than 0 seconds")

    texts = [f"{{{{ {'a' * 1_000}{n} }}}}" for n in range(20)]
    with budget(look=look), pytest.raises(TemplateUnbounded, match="longer than 0 seconds"):
        compile_value(texts, "step a")


def test_a_template_costs_the_same_whether_it_was_made_before() -> None:
    """INV-187: whoever decides again comes to the same."""
    source = f"{{{{ {'once' * 300} }}}}"
    with budget(1_000), pytest.raises(TemplateUnbounded):
        compile_value(source, "step a")
    compiled(source)
    with budget(1_000), pytest.raises(TemplateUnbounded):
        compile_value(source, "step a")


def test_a_long_template_is_not_made_on_the_event_loop() -> None:
    """INV-188: one of some thousand characters takes longer than others may wait."""
    with pytest.raises(Lengthy):
        at_once(compile_value, f"{{{{ {'b' * 3_000} }}}}", "step a")


@pytest.mark.parametrize("wide", [[0] * 50_000, {str(n): 0 for n in range(50_000)}, [[]] * 50_000])
def test_a_wide_value_is_paid_for_part_by_part(wide: object) -> None:
    """INV-188: also where no part of it is a template."""
    with pytest.raises(Lengthy):
        at_once(compile_value, wide, "the template")
    with pytest.raises(Lengthy):
        at_once(names_in, wide)
    with budget(10_000), pytest.raises(TemplateUnbounded, match=r"^the template.*: it takes more steps"):
        compile_value(wide, "the template")


def test_what_is_kept_of_templates_is_bounded_by_their_characters() -> None:
    """INV-187: not by their number, as a long one takes megabytes."""
    for n in range(600):
        compiled(f"{{{{ {'c' * 1_000}{n} }}}}")
    assert 0 < _KEPT.characters <= 500_000
    before = _KEPT.characters
    compile_value([f"{{{{ once{n} }}}}" for n in range(9)], "the template", keep=False)
    assert _KEPT.characters == before


def test_the_text_used_longest_ago_goes_first() -> None:
    kept: KeptByLength[str] = KeptByLength(1_000)
    for key in "abc":
        kept.keep(key, key, 400)
        kept.get("a")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("a", None, "c")
    kept.keep("a", "again", 500)
    kept.keep("long", "long", 1_001)
    assert (kept.get("a"), kept.get("long"), kept.characters) == ("again", None, 900)
    for n in range(50):
        kept.keep(n, "short", 1)
    assert kept.characters <= 1_000


def test_the_form_of_a_workload_is_made_within_a_budget() -> None:
    """INV-188: what says whether a default is a template pays as everything else does."""
    from noetl.api.routes.executions.catalog import _property

    with pytest.raises(Lengthy):
        at_once(_property, "wide", [0] * 50_000)
