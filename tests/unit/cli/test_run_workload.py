"""What --set and --payload come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetl.cli.run.workload import given_payload, unknown_fields, value_of
from noetl.errors import InputError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5", -2.5),
        ("true", True),
        ("null", None),
        ("", ""),
        ("no", "no"),
        ("2026-01-02", "2026-01-02"),
        ("a: b", "a: b"),
        ('"3"', "3"),
        ('["a", 1]', ["a", 1]),
        ('{"a": 1}', {"a": 1}),
        ("{not json", "{not json"),
        ("[1, NaN]", [1, "NaN"]),
        ("'12'", "12"),
        ("'it''s'", "it's"),
        ("[a, 'b c', 3]", ["a", "b c", 3]),
        ("{page: '12', size: 3}", {"page": "12", "size": 3}),
        ("'tis", "'tis"),
        ("{{ x }}", "{{ x }}"),
        ("a # b", "a # b"),
        ("*.csv", "*.csv"),
        ("@daily", "@daily"),
        ("99999999999999999999", "99999999999999999999"),
        ("x=y", "x=y"),
    ],
)
def test_a_value_is_read_as_yaml_and_is_text_otherwise(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_dotted_names_nest_and_later_words_count() -> None:
    given = given_payload('{"a": {"b": 1, "c": 2}, "d": [1]}', ["a.b=3", "d=4", "e.f.g=x=y"])
    assert given == {"a": {"b": 3, "c": 2}, "d": 4, "e": {"f": {"g": "x=y"}}}


@pytest.mark.parametrize("text", ["noequals", "=3", "a..b=3", ".a=1"])
def test_a_set_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no NAME=VALUE"):
        given_payload(None, [text])


def test_a_refused_set_does_not_repeat_its_value() -> None:
    with pytest.raises(InputError) as refused:
        given_payload(None, ["=hunter2"])
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(("name", "text"), [("values.json", '{"a": 1}'), ("values.yaml", "a: 1\n")])
def test_a_payload_may_come_from_a_file(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert given_payload(f"@{tmp_path / name}", []) == {"a": 1}


def test_a_wrong_payload_file_is_told_about_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("a: 1\nb: [\n")
    with pytest.raises(InputError, match=r"values\.yaml:3:1: error yaml_invalid"):
        given_payload(f"@{file}", [])


@pytest.mark.parametrize("payload", ["[1]", "3", "{", "@/does/not/exist.json"])
def test_a_payload_that_is_no_mapping_is_refused(payload: str) -> None:
    with pytest.raises(InputError):
        given_payload(payload, [])


def test_values_the_workload_has_no_place_for_are_named_with_the_nearest() -> None:
    workload = {"count": 1, "source": {"url": "x"}, "free": {}}
    given = {"cuont": 2, "source": {"ulr": "y", "url": "z"}, "free": {"anything": 1}}
    assert list(unknown_fields(workload, given)) == [
        "the playbook's workload has no cuont, so only templates that name it will see it; did you mean count?",
        "the playbook's workload has no source.ulr, so only templates that name it will see it; did you mean source.url?",
    ]
