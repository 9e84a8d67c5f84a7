"""The workload an execution starts with: defaults that are rendered, values that are given, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.plan.workload import Workload
from noetl.errors import TemplateFailed
from noetl.language.playbook.parse import parse
from noetl.model.ids import snowflake_time

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo, path: demo/it}\n"
BODY = "workflow: [{step: a, tool: {kind: noop}}]\n"


def in_force(workload: str, **given: Any) -> dict[str, Any]:
    """Return what is in force for an execution 7 of version `c1` of `demo/it`; `workload` begins in line 4."""
    found = Workload(parse(f"{HEAD}workload:{workload}\n{BODY}").playbook)
    return found.in_force(given, execution_id=7, catalog_id="c1")


def test_defaults_are_rendered_with_who_is_running_and_keep_their_types() -> None:
    assert in_force(
        ' {file: "f_{{ execution_id }}.txt", who: "{{ catalog_id }} {{ path }}", id: "{{ job.uuid }}",'
        ' list: "{{ range(2) | list }}", number: "{{ 3 }}", text: "007", on: true}'
    ) == {
        "file": "f_7.txt", "who": "c1 demo/it", "id": "7", "list": [0, 1], "number": 3, "text": "007", "on": True,
    }  # fmt: skip


def test_defaults_are_rendered_in_the_order_they_need_each_other() -> None:
    """A default may need one beside it in the same mapping, one that is written later, and whole mappings."""
    assert in_force(
        ' {all: "{{ source }}", last: "{{ source.url }}?{{ names[1] }}", names: ["{{ first }}", "{{ last_name }}"],'
        ' source: {host: h, url: "http://{{ workload.source.host }}/{{ first }}"}, first: a, last_name: "{{ first }}b"}'
    ) == {
        "all": {"host": "h", "url": "http://h/a"},
        "last": "http://h/a?ab",
        "names": ["a", "ab"],
        "source": {"host": "h", "url": "http://h/a"},
        "first": "a",
        "last_name": "ab",
    }


def test_what_is_given_is_data_and_what_is_made_of_it_follows() -> None:
    text = ' {host: h, db: {name: d, url: "pg://{{ host }}/{{ workload.db.name }}"}, file: "{{ nowhere }}"}'
    given = {"host": "{{ execution_id }}", "db": {"name": "{{ 1 }}"}, "file": "{{ keychain.x }}", "more": "{{ y }}"}
    assert in_force(text, **given) == {
        "host": "{{ execution_id }}",
        "db": {"name": "{{ 1 }}", "url": "pg://{{ execution_id }}/{{ 1 }}"},
        "file": "{{ keychain.x }}",
        "more": "{{ y }}",
    }


def test_a_default_may_read_what_only_the_request_gives() -> None:
    text = " {region: \"{{ workload.where | default('eu') }}\", also: \"{{ workload.get('where', 'eu') }}\"}"
    assert in_force(text) == {"region": "eu", "also": "eu"}
    assert in_force(text, where="us") == {"region": "us", "also": "us", "where": "us"}


def test_a_key_of_the_workload_comes_before_the_path_and_after_names_of_the_language() -> None:
    assert in_force(' {path: mine, seen: "{{ path }}", execution_id: 1, id: "{{ execution_id }}"}')["seen"] == "mine"
    assert in_force(' {execution_id: 1, id: "{{ execution_id }}"}')["id"] == "7"


def test_keys_below_the_top_may_be_templates() -> None:
    assert in_force(' {headers: {"X-{{ name }}": "{{ execution_id }}"}, name: Id}')["headers"] == {"X-Id": "7"}


@pytest.mark.parametrize(
    ("workload", "said", "line"),
    [
        ('\n  a: 1\n  b: "{{ nobody }}"', "field workload.b: 'nobody' is undefined", 6),
        ("\n  a:\n    b: |\n      one\n      {{ a.nobody }}", "field workload.a.b: 'a.nobody' is undefined", 8),
        ('\n  a: [1, "{{ nobody }}"]', "field workload.a[1]: 'nobody' is undefined", 5),
        ('\n  a: "{{ b }}"\n  b: "{{ nobody }}"', "field workload.b: 'nobody' is undefined", 6),
        ('\n  a: "{{ ctx.x }}"', "field workload.a: 'ctx' is undefined", 5),
        ('\n  a: "{{ b }}"\n  b: ["{{ c.d }}"]\n  c: {d: "{{ a }}"}', "workload.a, workload.b, workload.c.d, workload.a", 5),
        ('\n  x: 1\n  a: "{{ a }}"', "field workload.a: the request has to give a, which has no default", 6),
        ('\n  x: 1\n  a: "{{ workload }}"', "field workload.a: this default needs itself", 6),
        ('\n  x: 1\n  a: "{{ workload | tojson }}"', "field workload.a: this default needs itself", 6),
        ('\n  a: "{{ keychain.shop.token }}"', "field workload.a: keychain cannot be read in a workload", 5),
        ('\n  a: "{{ keychain.shop.token | default(1) }}"', "field workload.a: keychain cannot be read", 5),
    ],
)  # fmt: skip
def test_a_default_that_cannot_be_rendered_is_named_with_its_line(workload: str, said: str, line: int) -> None:
    with pytest.raises(TemplateFailed) as failed:
        in_force(workload)
    assert failed.value.message.startswith("demo/it, ")
    assert said in failed.value.message
    assert f"(line {line} of the playbook)" in failed.value.message


def test_a_value_that_no_event_can_hold_is_refused_with_its_field() -> None:
    with pytest.raises(TemplateFailed, match=r"demo/it, field workload\.a: the value cannot be recorded"):
        in_force(' {a: "{{ 2 ** 60 + 1 }}"}')


def test_a_failure_deep_down_is_found_once_however_often_it_is_asked_for() -> None:
    """Each mapping asks for the next one as text, which is tried twice where it fails: in vain for the second time."""
    links = "".join(f'\n  m{n}: {{x: "{{{{ m{n + 1} | tojson }}}}"}}' for n in range(60))
    with pytest.raises(TemplateFailed, match=r"field workload\.m60\.x: 'nobody' is undefined"):
        in_force(f'{links}\n  m60: {{x: "{{{{ nobody }}}}"}}')


def test_a_default_that_names_itself_is_the_value_of_the_request() -> None:
    text = ' {user: "{{ user | default(\'nobody\') }}", deep: {x: "{{ deep.x | default(1) }}"}, also: "{{ workload.user }}"}'
    assert in_force(text) == {"user": "nobody", "deep": {"x": 1}, "also": "nobody"}
    assert in_force(text, user="ada", deep={"x": 2}) == {"user": "ada", "deep": {"x": 2}, "also": "ada"}


def test_what_was_given_and_when_is_known_to_the_defaults_alone() -> None:
    text = ' {at: "{{ now() }}", asked: "{{ payload.n | default(0) }}"}'
    assert in_force(text, n=3) == {"at": snowflake_time(7).isoformat(), "asked": 3, "n": 3}
    assert in_force(' {now: 5, at: "{{ now }}"}') == {"now": 5, "at": 5}
