from typing import Any

import pytest

from noetl.errors import PlaybookInvalid, TemplateFailed
from noetl.language.templates.scopes import Names, apply_set, compile_set, names_of
from noetl.language.templates.template import compiled


def names(**values: Any) -> Names:
    return names_of(execution_id=2**60, **values)


def rendered(source: str, within: Names) -> Any:
    return compiled(source).render(within)


def test_workload_keys_stand_at_the_top_and_step_names_and_scopes_come_first() -> None:
    within = names(
        workload={"api": "x", "fetch": "key", "ctx": "key", "output": "key", "loop": "key"},
        results={"fetch": {"rows": [1]}, "input": {}},
        ctx={"a": 1},
        input={"i": 1},
    )
    assert rendered("{{ api }}{{ workload.api }}", within) == "xx"
    assert rendered("{{ fetch.rows[0] + ctx.a + input.i }}", within) == 3
    assert "output" not in within
    assert "loop" not in within


def test_ids_are_text() -> None:
    within = names(catalog_id=2**61)
    assert rendered("{{ execution_id }}", within) == str(2**60)
    assert rendered("{{ catalog_id }}", within) == str(2**61)


def test_a_row_sees_itself_by_its_iterators_name() -> None:
    row = names(workload={"item": "key"}).for_row("item", {"id": 5}, 1, length=2, _frame_index=7)
    assert rendered("{{ iter.item.id + item.id }}", row) == 10
    assert row["iter"] == {"item": {"id": 5}, "_index": 1, "_first": False, "_last": True, "_frame_index": 7}
    assert row["loop"] == {"index": 1, "first": False, "last": True, "length": 2, "done": False}


def test_an_iterator_named_like_a_scope_is_only_seen_in_iter() -> None:
    row = names(ctx={"a": 1}, job={"name": "j"}).for_row("ctx", {"id": 5}, 0)
    assert rendered("{{ iter.ctx.id + ctx.a }}", row) == 6
    assert rendered("{{ job.id }}", names(job={"name": "j"}).for_row("job", {"id": 5}, 0)) == 5


def test_the_end_of_a_cursor_is_not_known_in_advance() -> None:
    row = names().for_row("item", 1, 0)
    assert (row["iter"]["_first"], row["iter"]["_last"], row["loop"]["length"]) == (True, False, None)


def test_a_frame_worked_off_at_once_sees_all_its_rows() -> None:
    frame = names().for_frame("item", [{"id": 1}, {"id": 2}], {"index": 3, "worker_slot_id": 0})
    assert rendered("{{ frame.rows | map(attribute='id') | sum + frame.index + frame.row_count }}", frame) == 8
    assert frame["iter"]["item_rows"] == [{"id": 1}, {"id": 2}]


def test_what_one_row_writes_no_other_sees() -> None:
    ctx = {"n": 1, "deep": {"a": 1}}
    base = names(ctx=ctx)
    one, other = base.for_row("item", 1, 0), base.for_row("item", 2, 1)
    apply_set(one, {"ctx.n": 2, "ctx.deep.b": 3, "iter.x": 4, "step.y": 5})
    assert ctx == {"n": 1, "deep": {"a": 1}}
    assert (other["ctx"], "x" in other["iter"], other["step"]) == (ctx, False, {})
    assert other.ctx_writes == {}
    assert one["ctx"] == {"n": 2, "deep": {"a": 1, "b": 3}}


def test_a_set_is_visible_at_once_and_recorded_in_order() -> None:
    within = names(ctx={"n": 1})
    written = apply_set(within, {"n": "{{ ctx.n + 1 }}", "ctx.a.b": "{{ ctx.n }}", "iter.page": 1, "step.s": "x"})
    assert written == {"ctx.n": 2, "ctx.a.b": 1, "iter.page": 1, "step.s": "x"}
    assert rendered("{{ ctx.n }}{{ ctx.a.b }}{{ iter.page }}{{ step.s }}", within) == "211x"
    apply_set(within, {"ctx.n": 3})
    assert list(within.ctx_writes.items()) == [("a.b", 1), ("n", 3)]
    assert (within.iter_writes, within.step_writes) == ({"page": 1}, {"s": "x"})


def test_a_set_that_fails_changes_nothing() -> None:
    within = names(ctx={"n": 1})
    for assignments in ({"ctx.x": 1, "ctx.y": "{{ gone }}"}, {"ctx.x": 1, "ctx.n.deep": 2}):
        with pytest.raises(TemplateFailed, match=r"^step s, field set\.ctx\."):
            apply_set(within, compile_set(assignments, "step s"))
    assert within["ctx"] == {"n": 1}
    assert within.ctx_writes == {}


@pytest.mark.parametrize("key", ["ctx", "iter", "workload.x", "output.data", "ctx.", ".x", "ctx..x", ""])
def test_a_set_writes_only_into_its_own_scopes(key: str) -> None:
    with pytest.raises(PlaybookInvalid, match="step s, field set"):
        compile_set({key: 1}, "step s")


def test_another_run_starts_without_the_writes_of_this_one() -> None:
    base = names(ctx={"n": 1})
    run = base.for_run(event={"name": "x"})
    apply_set(run, {"step.a": 1, "ctx.n": 2})
    assert rendered("{{ event.name }}", run) == "x"
    assert base["step"] == {}
    assert base["ctx"] == {"n": 1}
