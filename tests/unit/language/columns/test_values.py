"""How what several tasks tell about one generation comes together: nothing that is known is forgotten."""

from __future__ import annotations

from noetl.model.lineage import Edge, Lineage, completed, joined, lineage_of, opaque, renamed

KNOWN = lineage_of("sql", {"a": {("o", "x"): "direct"}, "b": {}}, [("o", "day")])


def test_a_column_without_sources_is_a_constant() -> None:
    assert KNOWN.edges == (
        Edge("a", "o", "x", "direct"),
        Edge("b", None, None, "constant"),
        Edge(None, "o", "day", "indirect"),
    )


def test_what_is_known_takes_the_place_of_what_was_not() -> None:
    unknown = opaque("unknown", ["a", "b"], ["o"], "no plan")
    assert joined(None, unknown) is unknown
    assert joined(unknown, KNOWN) is KNOWN
    assert joined(KNOWN, unknown) is KNOWN


def test_lineage_only_grows_and_comes_to_rest() -> None:
    other = lineage_of("plan", {"a": {("o", "x"): "aggregated", ("p", "y"): "direct"}, "b": {("p", "z"): "direct"}})
    both = joined(KNOWN, other)
    assert {edge.kind for edge in both.of("a") if edge.source == "o"} == {"aggregated"}
    assert [edge.kind for edge in both.of("b")] == ["direct"], "it is no constant after all"
    assert joined(both, KNOWN) is both
    assert joined(both, other) is both


def test_two_aliases_of_one_dataset_become_one() -> None:
    told = lineage_of("sql", {"a": {("one", "x"): "direct", ("two", "x"): "aggregated"}})
    assert renamed(told, {"one": "D", "two": "D"}).edges == (Edge("a", "D", "x", "aggregated"),)


def test_columns_that_the_partition_fills_in_come_from_inputs_of_the_same_partition() -> None:
    told = Lineage("sql", (Edge("a", "o", "x", "direct"), Edge("gone", "o", "x", "direct")))
    whole = completed(told, ["a", "day", "city"], {"day": ["o"]}, [("o", "region")])
    assert whole.edges == (
        Edge("a", "o", "x", "direct"),
        Edge("city", None, None, "constant"),
        Edge("day", "o", "day", "direct"),
        Edge(None, "o", "region", "indirect"),
    )


def test_equal_lineage_has_an_equal_digest() -> None:
    again = lineage_of("sql", {"b": {}, "a": {("o", "x"): "direct"}}, [("o", "day")])
    assert again.digest == KNOWN.digest
    assert again.digest != opaque("unknown", ["a"], ["o"]).digest
