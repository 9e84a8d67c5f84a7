"""Views as text: every problem at once with its place, one version for equal views, and a schema for editors."""

from __future__ import annotations

import pytest

from noetl.language.view.document import ViewInvalid, is_view, json_schema, parse_view, problems_of

GOOD = """\
kind: View
name: running
source: {events: [frame.*, stage.closed]}
sql: |
  SELECT CAST(stage_id AS STRING) AS stage_id, count(*) AS running FROM events GROUP BY stage_id
keys: stage_id
keep: running > 0
event_time: {watermark: 1h}
"""


def codes(text: str, **files: str) -> list[tuple[int, str]]:
    content = {f"{name}.py": body.encode() for name, body in files.items()}
    return [(one.line, one.code) for one in problems_of(text, files=content.get)]


def test_a_view_is_read_with_every_default_filled_in() -> None:
    view = parse_view(GOOD).definition
    assert (view.types, view.keys, view.keep) == (("frame.*", "stage.closed"), ("stage_id",), "running > 0")
    assert (view.watermark_seconds, view.time_column, view.sink) == (3600.0, "event_time", "postgres")
    assert (view.interval_ms, view.batch_events, view.relation) == (1000, 50_000, "events")


def test_all_problems_are_told_at_once_with_their_places() -> None:
    """INV-98."""
    text = """\
kind: View
name: Bad
source: {events: frame.*, dataset: orders}
sql: |
  SELECT a, first(b) AS c, now() FROM evnts
  GROUP BY a
keys: [d]
keep: max(c) > 1
fuction: x
sink: {dataset: X}
"""
    assert codes(text) == [
        (2, "wrong_value"),
        (3, "given_twice"),
        (5, "sql_refused"),
        (5, "sql_refused"),
        (5, "unknown_table"),
        (8, "sql_refused"),
        (9, "unknown_field"),
        (10, "wrong_value"),
    ]
    with pytest.raises(ViewInvalid, match="did you mean function"):
        parse_view(text)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT a FROM events GROUP BY a HAVING count(*) > 1", "HAVING"),
        ("SELECT a, row_number() OVER (ORDER BY b) AS n FROM events", "window function"),
        ("SELECT e.a FROM events AS e JOIN events AS f ON e.b = f.b", "joins"),
        ("SELECT a FROM events ORDER BY a", "no order"),
        ("SELECT a FROM events LIMIT 5", "no limit"),
        ("SELECT a FROM (SELECT b AS a FROM events) AS x", "subqueries"),
        ("SELECT a FROM events UNION ALL SELECT a FROM events", "one SELECT"),
        ("SELECT a, rand() AS b FROM events", "rand does not give the same value"),
        ("SELECT a, last(b) AS b FROM events GROUP BY a", r"write max_by\(x, event_id\)"),
        ("SELECT b FROM events", "the key a is no column"),
        ("DELETE FROM events", "no SELECT"),
    ],
)
def test_what_could_not_be_kept_up_to_date_or_proven_is_refused(sql: str, said: str) -> None:
    """INV-98."""
    text = f"kind: View\nname: v\nsource: {{events: a.b}}\nsql: {sql}\nkeys: a\n"
    with pytest.raises(ViewInvalid, match=said):
        parse_view(text)


def test_windows_of_time_are_no_window_clauses() -> None:
    sql = "SELECT window.start AS hour, count(*) AS n FROM events GROUP BY window(event_time, '1 hour')"
    assert codes(f'kind: View\nname: v\nsource: {{events: a.b}}\nsql: "{sql}"\nkeys: hour\n') == []


def test_a_rollup_may_be_any_select_over_rows() -> None:
    text = GOOD.replace(
        "keep: running > 0", "rollup: SELECT max(running) AS most, 1 AS k FROM rows HAVING max(running) > 1"
    )
    assert codes(text.replace("keys: stage_id", "keys: k")) == []
    assert codes(text.replace("FROM rows", "FROM events").replace("keys: stage_id", "keys: k")) == [
        (7, "unknown_table")
    ]


def test_code_is_read_and_never_run() -> None:
    text = "kind: View\nname: v\nsource: {events: a.b}\nfile: code.py\nfunction: other\nkeys: a\n"
    assert codes(text) == [(4, "unknown_file")]
    assert codes(text, code="def view(events): return events") == [(4, "unknown_function")]
    assert codes(text, code="def other(events:") == [(1, "python_invalid")]
    assert codes(text, code="import helper\nraise SystemExit\ndef other(events): ...") == []


def test_equal_views_are_one_version_and_code_counts() -> None:
    """INV-97."""
    again = "# a comment\n" + GOOD.replace("keys: stage_id", "keys: [stage_id]")
    assert parse_view(GOOD).digest == parse_view(again).digest
    assert parse_view(GOOD).digest != parse_view(GOOD.replace("> 0", "> 1")).digest
    text = "kind: View\nname: v\nsource: {events: a.b}\nfile: code.py\nkeys: a\n"
    code = {"code.py": b"import side\ndef view(events): return events", "side.py": b"x = 1"}
    first = parse_view(text, files=code)
    assert sorted(first.files) == ["code.py", "side.py"]
    assert first.bundle() == parse_view(text, files=code).bundle()
    assert first.digest != parse_view(text, files={**code, "side.py": b"x = 2"}).digest


def test_a_dataset_has_no_late_rows() -> None:
    text = "kind: View\nname: v\nsource: {dataset: orders}\nsql: SELECT a FROM orders\nkeys: a\nevent_time: {watermark: 1h}\n"
    assert codes(text) == [(6, "misplaced_field")]


def test_views_are_told_by_their_kind() -> None:
    assert is_view(GOOD)
    assert not is_view("kind: Playbook\nname: x\n")
    assert is_view("kind: View\nname: [")


def test_the_schema_names_every_field() -> None:
    schema = json_schema()
    assert {"name", "source", "sql", "keys", "sink", "barrier_interval_ms"} <= schema["properties"].keys()
    assert schema["required"] == ["kind", "name", "source", "keys"]
