"""SQL text falls apart at the semicolons between statements and nowhere else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.engine.tools.sql_split import replace_placeholders, split, statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ;; -- nothing;\n /* nor ; here */ ;", []),
        ("select 1", ["select 1"]),
        ("select 1;\n\nselect 2 ;", ["select 1", "select 2"]),
        ("-- it's a comment; still\nselect 1; select 2", ["-- it's a comment; still\nselect 1", "select 2"]),
        ("select 'a;''b;'; select 2", ["select 'a;''b;'", "select 2"]),
        (r"select E'a\';b'; select '\'; select 3", [r"select E'a\';b'", r"select '\'", "select 3"]),
        (r"select e'\\'; select 2", [r"select e'\\'", "select 2"]),
        ("select 'value' as e'x'; select 2", ["select 'value' as e'x'", "select 2"]),
        ('select "a;""b"; select 2', ['select "a;""b"', "select 2"]),
        ("select U&'d;\\0061'; select 2", ["select U&'d;\\0061'", "select 2"]),
        ("/* a /* ; */ ; */ select 1; select 2", ["/* a /* ; */ ; */ select 1", "select 2"]),
        ("do $$ begin; end $$; select 2", ["do $$ begin; end $$", "select 2"]),
        ("do $a$ x; $b$ ; $$ $a$; select 2", ["do $a$ x; $b$ ; $$ $a$", "select 2"]),
        ("select a$b$; select $1; select 3", ["select a$b$", "select $1", "select 3"]),
        ("create rule r as on insert to t do (select 1; select 2); x", ["create rule r as on insert to t do (select 1; select 2)", "x"]),
        ("select 'open; select 2", ["select 'open; select 2"]),
        ("select 1 /* open; select 2", ["select 1 /* open; select 2"]),
        ("select $q$ open; select 2", ["select $q$ open; select 2"]),
        ("select 1; 5", ["select 1", "5"]),
        ("begin; select 1; end;", ["begin", "select 1", "end"]),
    ],
)  # fmt: skip
def test_statements_end_at_semicolons_outside_quotes_comments_and_bodies(text: str, expected: list[str]) -> None:
    assert split(text) == expected


def test_the_body_of_a_standard_function_is_one_statement() -> None:
    body = (
        "CREATE OR REPLACE FUNCTION f(a int) RETURNS int\nBEGIN ATOMIC\n  SELECT CASE WHEN a > 1 THEN 2 END;\n"
        "  SELECT a;\nEND"
    )

    assert split(f"{body};\nSELECT f(1)") == [body, "SELECT f(1)"]


def test_words_are_those_outside_quotes_and_parentheses() -> None:
    (found,) = statements(
        "/* DELETE */ with x as (insert into t values ('SELECT')) update \"from\" set a = 1 -- returning"
    )

    assert found.words == ("WITH", "X", "AS", "UPDATE", "SET", "A")


_NAME = st.from_regex(r"[a-z]{1,4}", fullmatch=True)
_SOUP = st.text(alphabet="ab;'\"$-/*\\ \n():E", max_size=12)
_FRAGMENT = st.one_of(
    _NAME.map(lambda name: f" {name} "),
    _SOUP.map(lambda text: " '" + text.replace("'", "''") + "' "),
    _SOUP.map(lambda text: " E'" + re.sub(r"(['\\])", r"\\\1", text) + "' "),
    _SOUP.map(lambda text: ' "' + text.replace('"', '""') + '" '),
    _SOUP.map(lambda text: " --" + text.replace("\n", " ") + "\n"),
    _SOUP.map(lambda text: " /*" + text.replace("*", " ").replace("/", " ") + "*/ "),
    st.tuples(_NAME, _SOUP).map(lambda pair: f" $_{pair[0]}$" + pair[1].replace("$", " ") + f"$_{pair[0]}$ "),
    _SOUP.map(lambda text: " /* /*" + text.replace("*", " ").replace("/", " ") + "*/ ; */ "),
    _NAME.map(lambda name: f" ({name}, ';') "),
    st.just(" $1 + 2 "),
)
_STATEMENT = st.lists(_FRAGMENT, max_size=5).map(lambda parts: "select" + "".join(parts))


@given(st.lists(_STATEMENT, max_size=6))
def test_joined_statements_are_split_into_the_same_statements(given_statements: list[str]) -> None:
    assert split(";".join(given_statements) + ";") == [text.strip() for text in given_statements]


@given(st.text(alphabet="ab;'\"$-/*\\ \n()E", max_size=60))
def test_any_text_keeps_all_its_characters_but_semicolons_and_space(text: str) -> None:
    at = 0
    for statement in split(text):
        found = text.index(statement, at)
        at = found + len(statement)


@given(_STATEMENT)
def test_splitting_what_was_split_changes_nothing(text: str) -> None:
    assert split(text) == [text.strip()]


def test_placeholders_are_replaced_outside_quotes_and_casts_are_left_alone() -> None:
    text = "select :a::int, %(b)s, ':c', a[1:2], $$ :d $$, x::text, $1, '%s' -- :e\n, %s, a % b"

    replaced = replace_placeholders(text, lambda match: f"<{match.group()}>")

    assert replaced == "select <:a>::int, <%(b)s>, ':c', a[1:2], $$ :d $$, x::text, <$1>, '%s' -- :e\n, <%s>, a % b"
