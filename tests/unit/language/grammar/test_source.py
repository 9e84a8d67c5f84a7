"""YAML by the core schema of 1.2, with places, bounds and no tags; key order and comments are not part of the digest."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.language.playbook.texts import HEAD

from noetl.errors import PlaybookInvalid
from noetl.language.grammar.problems import Problems
from noetl.language.grammar.yaml_reader import MAX_CHARACTERS, MAX_DEPTH, read
from noetl.language.playbook.parse import parse


def value(text: str) -> Any:
    problems = Problems()
    node = read(text, problems)
    assert not problems.found
    assert node is not None
    return node.plain()


def refused(text: str) -> list[tuple[str, int, int]]:
    problems = Problems()
    read(text, problems)
    return [(one.code, one.line, one.column) for one in problems.found]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("yes", "yes"), ("on", "on"), ("true", True), ("FALSE", False), ("~", None), ("", None), ("007", 7), ("0o17", 15),
        ("0x1F", 31), ("1_000", "1_000"), ("1e3", 1000.0), (".5", 0.5), ("+1", 1), ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"), ("'1'", "1"), ("1.2.3", "1.2.3"), ("=", "="),
    ],
)  # fmt: skip
def test_plain_words_are_read_as_yaml_1_2_has_them(text: str, meant: object) -> None:
    found = value(f"a: {text}\n")["a"]
    assert found == meant
    assert type(found) is type(meant)


def test_merged_keys_do_not_replace_those_given() -> None:
    assert value("x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz: {<<: [*x, *y], a: 0}\n")["z"] == {"a": 0, "b": 2, "c": 4}


def test_a_quoted_merge_sign_is_a_key_like_any_other() -> None:
    assert value("'<<': 1\n") == {"<<": 1}


def test_an_alias_inside_its_own_anchor_is_refused() -> None:
    assert refused("a: &a [*a]\n") == [("yaml_alias", 1, 8)]


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: [*y]\n",
        "[1, 2",
        "a: 'x",
        'a: "\\q"',
        "\tb: 1",
        "%YAML 9.1\n---\na: 1\n",
        'a: "\\UFFFFFFFF"',
        "a: \x07",
    ],
)
def test_broken_yaml_is_refused_with_a_place(text: str) -> None:
    ((code, line, column),) = refused(text)
    assert code in ("yaml_invalid", "yaml_alias")
    assert line >= 1
    assert column >= 1


def test_a_lone_surrogate_cannot_be_stored() -> None:
    assert refused('a: "\\ud800"\n') == [("yaml_character", 1, 4)]
    assert refused('a: "\\0"\n') == [("yaml_character", 1, 4)]


def test_nesting_has_a_bound() -> None:
    assert value("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert refused("[" * 10_000) == [("too_deep", 1, MAX_DEPTH + 1)]


def test_nesting_through_anchors_has_the_same_bound() -> None:
    lines = ["a0: &a0 []"] + [f"a{n}: &a{n} {'[' * 20}*a{n - 1}{']' * 20}" for n in range(1, 6)]
    assert refused("\n".join(lines)) == [("too_deep", 5, 29)]


def test_anchors_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert [code for code, _, _ in refused("\n".join(lines))] == ["too_large"]


def test_a_text_beyond_the_bound_is_not_even_read() -> None:
    assert refused("x" * (MAX_CHARACTERS + 1)) == [("too_large", 1, 1)]


_TEXTS = st.text(alphabet=st.sampled_from("abc:{}[],&*!|>'\"%@`#?- \n\t\\~<0123.xn\ud800\0é"), max_size=60)
_WORDS = st.lists(
    st.sampled_from(
        ["apiVersion: noetl.io/v2\n", "kind: Playbook\n", "metadata: {name: x}\n", "workflow:\n", "  - step: a\n", "    tool:", "    next:",
         " {kind: noop}", " [{kind: http, url: 1}]", "\n", "    loop: {in: [1]}\n", " *x", " &x", "    spec: {policy: {rules: [{else: 1}]}}\n",
         "    set: {1: 2}\n", "workload: 5\n", "keychain: [1]\n", "workbook: [{tool: 1}]\n", "- ", "tool: {kind: workbook}\n", "{", "}", "<<: ",
         "executor: {spec: {loop_mode: 1}}\n", "    output: {output_select: [1, a]}\n", "    frame_policy: 5\n", " {kind: iterator}\n"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(st.one_of(st.text(max_size=60), _TEXTS, _WORDS))
@example("? a")
@example("%TAG ! x:\n---\na: 1")
@example("- &a\n- *a")
def test_no_text_makes_the_parser_fail_in_any_other_way(text: str) -> None:
    refusal = None
    try:
        parse(text)
    except PlaybookInvalid as error:
        refusal = error
    assert refusal is None or (refusal.details["problems"] and refusal.message)


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text("abc é\n:#'\"{}", max_size=8)
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
)


def _shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        pairs = [(key, _shuffled(item, order)) for key, item in value.items()]
        order.shuffle(pairs)
        return dict(pairs)
    return [_shuffled(item, order) for item in value] if isinstance(value, list) else value


def _written(value: Any) -> str:
    """Write JSON over many lines, each with a comment: YAML's own writers make text that its readers refuse."""
    return json.dumps(value, indent=4, ensure_ascii=False).replace("\n", " # said\n")


@given(st.dictionaries(st.text("abc", min_size=1), _JSON, max_size=4), st.randoms(use_true_random=False))
def test_key_order_comments_and_layout_do_not_change_the_digest(workload: dict[str, Any], order: random.Random) -> None:
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "x", "path": "demo/x"},
        "workload": workload,
        "workflow": [{"step": "a", "tool": {"kind": "noop"}}],
    }
    plain = parse(json.dumps(document)).playbook
    other = parse("# a comment\n" + _written(_shuffled(document, order)) + "\n# another\n").playbook
    assert plain.digest == other.digest
    assert plain.workload == other.workload


def test_another_value_changes_the_digest() -> None:
    one, two = (parse(f"{HEAD}workload: {{a: {n}}}\nworkflow: [{{step: a, tool: {{kind: noop}}}}]") for n in (1, "'1'"))
    assert one.playbook.digest != two.playbook.digest
