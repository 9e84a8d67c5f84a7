"""`noetl catalog` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Noetl = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.service


def test_a_playbook_is_registered_once_listed_printed_removed_and_restored(noetl: Noetl, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    assert noetl("catalog", "register", "hello.yaml")[1] == "hello.yaml: registered as demo/hello version 1\n"
    assert noetl("catalog", "register", "hello.yaml")[1] == "hello.yaml: stands already as demo/hello version 1\n"
    file.write_text(file.read_text().replace("world", "moon"))
    (answer,) = json.loads(noetl("catalog", "register", "--json", "hello.yaml")[1])
    assert (answer["path"], answer["version"], answer["created"], answer["warnings"]) == ("demo/hello", 2, True, [])
    assert noetl("catalog", "list")[1].splitlines()[1].split()[:2] == ["demo/hello", "2"]
    assert noetl("catalog", "list", "other/", "--json")[1] == "[]\n"
    assert "world" in noetl("catalog", "get", "demo/hello@1")[1]
    assert noetl("catalog", "get", "catalog://demo/hello")[1] == file.read_text()
    assert noetl("catalog", "remove", "demo/hello@2")[1] == "demo/hello version 2 is removed.\n"
    assert json.loads(noetl("catalog", "get", "demo/hello", "--json")[1])["version"] == 1
    assert noetl("catalog", "restore", "demo/hello@2", "--json")[0] == 0
    assert json.loads(noetl("catalog", "get", "demo/hello", "--json")[1])["version"] == 2


def test_with_an_error_in_one_file_nothing_is_registered(noetl: Noetl, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text((tmp_path / "hello.yaml").read_text().replace("step: each}", "step: eech}"))
    code, output, errors = noetl("catalog", "register", "hello.yaml", "bad.yaml")
    assert (code, output) == (2, "")
    assert "bad.yaml:8:26: error unknown_step: there is no step eech (did you mean each?)" in errors
    assert noetl("catalog", "list", "--json")[1] == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["get", "demo/none"], 1, "error: the catalog has no playbook demo/none"),
        (["get", "demo/hello@x"], 2, "error: 'x' is no version of demo/hello"),
        (["remove", "demo/hello"], 2, "error: demo/hello names no version"),
        (["register", "nowhere.yaml"], 2, "error: nowhere.yaml cannot be read: No such file or directory"),
    ],
)
def test_wrong_input_is_answered_with_one_line(arguments: list[str], code: int, said: str, noetl: Noetl) -> None:
    found = noetl("catalog", *arguments)
    assert found[0] == code
    assert found[2].startswith(said)
