"""The reference page says what the declarations say."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.runtime.config.reference import render, text
from noetl.runtime.config.schema import leaves, variable
from noetl.runtime.settings.types import SecretText

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: noetl config reference > docs/reference/configuration.md"


def test_every_setting_has_a_meaning_and_its_variable_on_the_page() -> None:
    page = render()
    for path, leaf in leaves():
        assert leaf.field.description, path
        assert f"| `{'.'.join(path)}` |" in page
        assert f"`{variable(path)}`" in page


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        ("a.b", "a.b"),
        ("null", '"null"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        ("${x}", '"$${x}"'),
        (("a", "b"), "[a, b]"),
        (SecretText("s"), '"**********"'),
    ],
)
def test_values_are_written_as_the_file_reader_takes_them(value: object, written: str) -> None:
    assert text(value) == written
