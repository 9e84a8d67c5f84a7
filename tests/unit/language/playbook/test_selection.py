from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import TemplateFailed
from noetl.language.playbook.model import Accumulate, Select
from noetl.language.playbook.selection import accumulate, at_path, select

DATA = {"a": {"b": [{"c": 1}, {"c": None}], "x.y": 2, "1": "one"}, "list": [[1, 2], [3]]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", DATA),
        ("$.a.b[0].c", 1),
        ("a.b[1].c", None),
        ("a.b[-1].c", None),
        ("$.list[0][1]", 2),
        ('$.a["x.y"]', 2),
        ("$['a']['x.y']", 2),
        ("$.a.1", "one"),
    ],
)
def test_a_path_leads_to_its_value(path: str, value: Any) -> None:
    assert at_path(DATA, path) == value


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("$.a.z.c", "$.a is a mapping without 'z'"),
        ("$.a.b[9].c", "$.a.b is a list without 9"),
        ("$.a.b.c", "$.a.b is a list without 'c'"),
        ("$.a.b[0].c.d", "$.a.b[0].c is a plain value without 'd'"),
        ("$.a[0]", "$.a is a mapping without 0"),
    ],
)
def test_a_path_that_leads_nowhere_says_how_far_it_goes(path: str, said: str) -> None:
    with pytest.raises(TemplateFailed) as failure:
        at_path(DATA, path)
    assert said in failure.value.message
    assert failure.value.details == {"missing": path}


@pytest.mark.parametrize("path", ["$.a[", "$..a", "$.a[x]", "$$", "a."])
def test_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(TemplateFailed, match="is no path such as"):
        at_path(DATA, path)


def test_selected_values_get_their_names() -> None:
    assert select(DATA, (Select("$.a.b[0].c", "first"), Select("list[1]", "second"))) == {"first": 1, "second": [3]}


def gathered(how: Accumulate, *results: Any) -> Any:
    value = None
    for result in results:
        value = accumulate(value, result, how)
    return value


@pytest.mark.parametrize(
    ("how", "results", "value"),
    [
        (Accumulate(), [1, [2]], [1, [2]]),
        (Accumulate(strategy="concat"), [[1], [2, 3]], [1, 2, 3]),
        (Accumulate(strategy="concat", merge_path="$.d.items"), [{"d": {"items": [1]}}, {"d": {"items": [2]}}], [1, 2]),
        (Accumulate(strategy="append", merge_path="n"), [{"n": 1}, {"n": 2}], [1, 2]),
        (Accumulate(strategy="replace"), [1, 2], 2),
        (
            Accumulate(strategy="merge"),
            [{"a": {"x": 1}, "b": [1]}, {"a": {"y": 2}, "b": [2]}],
            {"a": {"x": 1, "y": 2}, "b": [2]},
        ),
        (Accumulate(max_items=2), [1, 2, 3], [1, 2]),
        (Accumulate(strategy="merge", max_items=1), [{"a": 1}, {"b": 2}], {"a": 1}),
    ],
)
def test_results_are_gathered_as_the_strategy_says(how: Accumulate, results: list[Any], value: Any) -> None:
    assert gathered(how, *results) == value


@pytest.mark.parametrize("strategy", ["concat", "merge"])
def test_results_of_another_shape_cannot_be_gathered(strategy: Any) -> None:
    with pytest.raises(TemplateFailed, match=f"accumulate: {strategy} needs"):
        accumulate(None, 5, Accumulate(strategy=strategy))


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.integers()))))
def test_gathering_changes_nothing_it_was_given(results: list[dict[str, Any]]) -> None:
    before = repr(results)
    gathered(Accumulate(strategy="merge"), *results)
    gathered(Accumulate(), *results)
    assert repr(results) == before
