"""`noetl check` prints one line per problem and a summary, and exits 1 only for errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from noetl.cli.check import check

CORPUS = Path(__file__).parents[3] / "playbooks"


def test_a_sound_playbook_is_told_in_one_line() -> None:
    answer = CliRunner().invoke(check, [str(CORPUS / "good" / "pages.yaml")])
    assert (answer.exit_code, answer.output) == (0, "1 playbook: 0 errors, 0 warnings\n")


def test_problems_are_printed_with_place_and_fix() -> None:
    file = CORPUS / "bad" / "duckdb_unknown_field.yaml"
    answer = CliRunner().invoke(check, [str(file), str(CORPUS / "warned" / "unreachable_step.yaml")])
    first, second, summary = answer.output.splitlines()
    assert answer.exit_code == 1
    assert first == (
        f"{file}:7:43: error unknown_field: workflow[a].tool.databse is not a field of the duckdb task"
        " (did you mean database?)"
    )
    assert ": warning unreachable_step: " in second
    assert summary == "2 playbooks: 1 error, 1 warning"


def test_old_spellings_fail_only_when_strict() -> None:
    file = str(CORPUS / "legacy" / "next_as_text.yaml")
    assert CliRunner().invoke(check, [file]).exit_code == 0
    assert CliRunner().invoke(check, ["--strict", file]).exit_code == 1


def test_json_carries_every_field() -> None:
    answer = CliRunner().invoke(check, ["--json", str(CORPUS / "bad" / "tool_kind_unknown.yaml")])
    shown = json.loads(answer.output)
    assert answer.exit_code == 1
    assert (shown["files"], shown["errors"], shown["warnings"]) == (1, 1, 0)
    assert shown["problems"][0] | {"file": ""} == {
        "severity": "error",
        "code": "unknown_kind",
        "message": "there is no kind of task htp",
        "file": "",
        "line": 7,
        "column": 18,
        "suggestion": "did you mean http?",
    }


@pytest.mark.parametrize("name", ["nothing.yaml", "."])
def test_a_file_that_cannot_be_read_hides_no_other(name: str, tmp_path: Path) -> None:
    good, bad = str(CORPUS / "good" / "pages.yaml"), str(CORPUS / "bad" / "duckdb_unknown_field.yaml")
    answer = CliRunner().invoke(check, [good, str(tmp_path / name), bad])
    first, second, summary = answer.output.splitlines()
    assert answer.exit_code == 1
    assert first.startswith(f"{tmp_path / name}:1:1: error file_unreadable: the file cannot be read: ")
    assert second.startswith(f"{bad}:7:43: error unknown_field: ")
    assert summary == "2 playbooks, 1 unreadable file: 2 errors, 0 warnings"


def test_bytes_that_are_no_text_are_told_as_a_problem_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xff\xfe")
    answer = CliRunner().invoke(check, ["--json", str(file)])
    shown = json.loads(answer.output)
    assert (answer.exit_code, shown["files"], shown["errors"]) == (1, 1, 1)
    assert shown["problems"][0]["code"] == "file_unreadable"
    assert "byte 0" in shown["problems"][0]["message"]


def test_a_kind_that_an_installed_package_brings_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "weather_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather_tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[noetl.tools]\nweather = weather_tools:WeatherTool\n")
    file = tmp_path / "x.yaml"
    file.write_text((CORPUS / "bad" / "tool_kind_unknown.yaml").read_text().replace("htp", "weather"))
    assert CliRunner().invoke(check, [str(file)]).exit_code == 1

    monkeypatch.syspath_prepend(str(tmp_path))
    assert CliRunner().invoke(check, [str(file)]).exit_code == 0
