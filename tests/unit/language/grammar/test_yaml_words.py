"""Broken YAML is told in plain words, at its place, with advice on quoting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.language.grammar.problems import Problem, Problems
from noetl.language.grammar.yaml_reader import read


def refused(text: str) -> list[Problem]:
    problems = Problems("it.yaml")
    read(text, problems)
    return problems.in_order()


@pytest.mark.parametrize(
    ("text", "place", "said", "advice"),
    [
        ("a:\n\tb: 1\n", (2, 1), "a tab stands where only spaces may", "indent with spaces"),
        ('a: "hello\nb: 1\n', (1, 4), "a quote is opened here and never closed", "close it where the text ends"),
        ("a: 'it's'\n", (1, 8), "text goes on after the closing quote", "put all of the value in quotes"),
        ('a: "x" y\n', (1, 8), "text goes on after the closing quote", "put all of the value in quotes"),
        ("a: value: more\n", (1, 9), "a value holds a colon followed by a space", "put the whole value in quotes"),
        ("- a: 'b': c\n", (1, 9), "a value holds a colon followed by a space", "put the whole value in quotes"),
        ("a: {{ x }}\n", (1, 5), "outside of quotes {{ begins a mapping", "must stand in quotes"),
        ("- {{ x }}\n", (1, 4), "outside of quotes {{ begins a mapping", "must stand in quotes"),
        ("a: {b: {{ x }}\n", (1, 4), "{ is opened here and not closed", "{{ … }} must stand in quotes"),
        ("a: %x\n", (1, 4), "a value cannot begin with %", "put the whole value in quotes"),
        ("a: @daily\n", (1, 4), "a value cannot begin with @", "put the whole value in quotes"),
        ("a: `x`\n", (1, 4), "a value cannot begin with `", "put the whole value in quotes"),
        ("a: & b\n", (1, 5), "a value cannot begin with & or *", "put the whole value in quotes"),
        ("a: *.csv\n", (1, 4), "this alias refers to no anchor", "must stand in quotes"),
        ("a: ? b\n", (1, 4), "a value cannot begin with ?", "put the whole value in quotes"),
        ("%x: 1\n", (1, 1), "cannot begin with %", "put it in quotes"),
        ("a: 1\na: 2\n", (2, 1), "a is given twice", "the one in line 1"),
        ("a:\n  b: 1\n c: 2\n", (3, 2), "this line is not indented like those", "the same number of spaces"),
        ("a: 1\n  b: 2\n", (2, 3), "this line is indented deeper than it may be", "the same number of spaces"),
        ("a:1\nb: 2\n", (1, 2), "no space stands after the colon", "write key: value"),
        ("a: [1, 2\nb: 3\n", (1, 4), "[ is opened here and not closed", "close it with ]"),
        ("a: {b: 1\nc: 2\n", (1, 4), "{ is opened here and not closed", "close it with }"),
        ("a: [1,,2]\n", (1, 7), "a value is missing here", "stands in quotes"),
        ("a: - b\n", (1, 4), "a list cannot begin in the line of its key", "in quotes"),
        ("a: 1\n- b\n", (2, 1), "a list goes on where keys stand", "indent it below its key"),
        ("a: | x\n b\n", (1, 6), "text stands in the line of |", "in quotes"),
        ('a: "C:\\dir"\n', (1, 8), "a backslash within double quotes", "use single quotes"),
        ("a:\n  b: \x07\n", (2, 6), "a control character (U+0007) stands here", "remove it"),
        ("a: 1\nword\nb: 2\n", (2, 1), "it has no key", "a key ends with a colon"),
        ("a: [", (1, 5), "the text ends before a bracket is closed", "close each ["),
    ],
)
def test_each_mistake_is_told_in_plain_words(text: str, place: tuple[int, int], said: str, advice: str) -> None:
    found = refused(text)[0]
    assert (found.line, found.column) == place, str(found)
    assert said in found.message
    assert advice in str(found.suggestion)


@given(st.text("ab:'\"{}[]-,#&*!|>%@`?\\\n\t x", max_size=40))
def test_no_words_of_the_reader_reach_a_user(text: str) -> None:
    for found in refused(text):
        assert found.suggestion
        assert not any(word in found.message for word in ("block end", "token", "scalar", "<", "but found", "stream"))
